"""What makes a stage a Prefect task: the decorators, and the cache policy with the options that go with it."""
