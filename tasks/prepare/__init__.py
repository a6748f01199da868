"""Stages before any iteration: panels, demonstrations, tokenizer, first policy and warm start."""
