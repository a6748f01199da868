"""The world `webshop`: a shop to search, browse and buy in, as in WebShop (Yao et al. 2022, arXiv 2207.01206).

* `words`: the one normal form in which texts are searched and compared.
* `products`: what a product is, and what a customer may want of it.
* `assortment`: the word lists of our own shop.
* `own_shop`: its products and goals, drawn from them.
* `original_files`: products and goals from WebShop's own files.
* `shop`: products and goals together, the search engine over them, and the split that a goal belongs to.
* `similarity`: when two short phrases count as the same.
* `reward`: how well a purchase meets a goal.
* `places`: where a customer can be in the shop, and where each button leads.
* `pages`: what each place shows.
* `episode`: one episode, and its scripted players.
* `world`: the world, its parameters and its tasks.
"""

from envs.webshop.world import WebShop

__all__ = ["WebShop"]
