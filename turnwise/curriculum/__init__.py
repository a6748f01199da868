"""How many turns an episode of training may have, iteration by iteration."""
