"""The squared norm of each sampled token's score in the logits, from log-probabilities at two temperatures.

With the distribution p at the sampling temperature T and the sampled token y, the gradient of log p_y in the logits
over T is e_y - p, so that

    |e_y - p|^2 = 1 - 2 p_y + sum_j p_j^2

The sum needs no second look at the logits z. With q the same policy at half the temperature, q_j = p_j^2 / sum_k p_k^2:

    sum_j p_j^2 = p_y^2 / q_y
"""

from __future__ import annotations

import numpy as np

from turnwise.data.arrays import Numbers


def score_norms(log_p: Numbers, log_q: Numbers) -> Numbers:
    """The squared norms, from log-probabilities in nats of sampled tokens at T and at T / 2.

    Where both were not computed with the same rounding, the sum is held within what it can be: from p_y^2 to 1.
    """
    p = np.exp(log_p)
    squares: Numbers = np.clip(np.exp(2.0 * log_p - log_q), p**2, 1.0)
    norms: Numbers = 1.0 - 2.0 * p + squares
    return norms
