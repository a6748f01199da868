"""What `turnwise init` and `turnwise new` write: a world, a credit rule or a reward that keeps its contract.

Each file is what its reader gets, but for the names, so that linting, type checks and tests hold for it.
"""
