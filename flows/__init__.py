"""Composition of stages into runs, ablations and studies. No tensors, file formats or formulas are handled here."""
