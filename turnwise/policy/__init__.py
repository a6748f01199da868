"""The policy: the engines that sample from it, the learner that trains it, its critic, and its tokenizer."""
