"""The worlds. They are plug-ins: they import `turnwise.world`, `turnwise.seeding` and their own library."""
