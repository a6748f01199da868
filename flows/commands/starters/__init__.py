"""What `turnwise init` and `turnwise new` write: a world that keeps the contract, and an experiment on it.

Each file is what its reader gets, but for the names, so that linting, type checks and tests hold for it.
"""
