"""Figures of reports."""
