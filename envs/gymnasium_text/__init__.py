"""The world `gymnasium`: any environment that `gymnasium.make` makes, as a text world, by configuration alone.

* `settings`: what must be said of an environment, and the settings of those that come with Gymnasium.
* `views`: an observation as text.
* `planner`: value iteration where the environment publishes its model.
* `game`: an environment together with its settings.
* `episode`: one episode, and its scripted players.
* `world`: the world, its parameters and its tasks.
"""

from envs.gymnasium_text.world import GymnasiumText

__all__ = ["GymnasiumText"]
