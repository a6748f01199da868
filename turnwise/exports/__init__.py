"""Recorded runs for other programs: a policy and its conversations for Hugging Face, curves for other trackers."""
