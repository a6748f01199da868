"""Engines, which sample replies: their interface and its implementations."""
