"""What people look at: the page, the terminal's tables, the figures."""
