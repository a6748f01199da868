"""The world `gymnasium`: any environment that `gymnasium.make` makes, as a text world, by configuration alone.

* `settings`: what an environment needs to be played in text, with values for those that come with Gymnasium.
* `views`: observations as text.
* `planner`: value iteration where the environment publishes its model.
* `game`: an environment together with its settings.
* `episode`: one episode, and its baseline policies, of named actions or of any text.
* `textworld_games`, `textarena_games`: two libraries of text games as such environments.
* `world`: the world, its parameters and its tasks.
"""

from envs.gymnasium_text.world import GymnasiumText

__all__ = ["GymnasiumText"]
