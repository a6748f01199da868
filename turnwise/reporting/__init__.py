"""Reports: HTML pages, tables in the terminal, and figures."""
