"""The world `webshop`: a shop to search, browse and buy in, as in WebShop (Yao et al. 2022, arXiv 2207.01206).

* `words`: the normal form in which texts are searched and compared.
* `products`: products, and goals that a customer may have.
* `assortment`: the word lists of our own shop.
* `own_shop`: its products and goals, drawn from the word lists.
* `original_files`: products and goals from WebShop's own files.
* `shop`: products and goals together, their search engine, and the split that a goal belongs to.
* `similarity`: when two short phrases count as the same.
* `reward`: how well a purchase meets a goal.
* `places`: the customer's possible positions in the shop, and where each button leads.
* `pages`: the text of each place.
* `episode`: one episode, and its baseline policies.
* `world`: the world, its parameters and its tasks.
"""

from envs.webshop.world import WebShop

__all__ = ["WebShop"]
