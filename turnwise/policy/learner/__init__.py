"""How a policy is updated: batches, the objective and its losses, and the learner that descends it."""
