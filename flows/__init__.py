"""Composition: which stages follow which. No tensor, no file format, no formula."""
