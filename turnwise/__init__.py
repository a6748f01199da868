"""Turnwise: reproducible reinforcement learning of multi-turn language-model agents.

The library knows nothing of Prefect or DVC, and of MLflow only in `turnwise.tracking`. Importing this imports nothing
heavy.
"""

__version__ = "0.1.0"
