"""The update of a policy: batches, the objective with its losses, and the learner that minimises it."""
