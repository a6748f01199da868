"""Stages before any iteration: task sets, demonstrations, tokenizer, initial policy and SFT warm start."""
