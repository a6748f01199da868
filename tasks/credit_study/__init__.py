"""Stages of the credit study, `turnwise credit`."""
