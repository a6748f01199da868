"""Base policies: their tokenizer, their training data, their training and their publication."""
