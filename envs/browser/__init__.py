"""The worlds `browser` and `webarena`: web pages in a real Chromium, and WebArena's actions on them as text.

* `world`: the world `browser`, its parameters and its tasks.
* `webarena`: the world `webarena`: tasks from WebArena's files, on sites whose addresses the user gives.
* `episode`: one episode, and its random policy.
* `problem`: the interface of a problem: where it starts, when it is solved, and its oracle.
* `miniwob`, `miniwob_oracles`: pages of MiniWoB++ as problems, and their oracles.
* `catalogue`, `shop`, `shop_problems`: a small shop of our own: its products, its pages and its problems.
* `webarena_tasks`, `webarena_checks`: WebArena's files, and when one of its tasks is solved.
* `actions`: the grammar.
* `reading`: a page as text: the accessibility tree, or pruned HTML.
* `tabs`, `tab`: the actions carried out in the browser.
* `chromium`: the one browser of the process, and the thread that owns it.
* `loopback`: the web server of the pages.
"""

from envs.browser.webarena import WebArena
from envs.browser.world import Browser

__all__ = ["Browser", "WebArena"]
