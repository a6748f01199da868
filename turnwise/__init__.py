"""Turnwise: reproducible reinforcement learning of multi-turn language-model agents.

The library does not use Prefect or DVC, and uses MLflow only in `turnwise.tracking`. Importing this package imports
nothing heavy.
"""

__version__ = "0.1.0"
