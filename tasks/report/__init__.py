"""Stages that gather what a report tells."""
