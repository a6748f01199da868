"""What samples replies: the contract, and the engines that keep it."""
