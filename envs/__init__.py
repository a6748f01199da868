"""The worlds, as plug-ins: they import only `turnwise.world`, `turnwise.seeding` and the library that each wraps."""
