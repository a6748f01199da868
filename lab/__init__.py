"""What writes this repository's own pages and base policies. It may import everything; nobody imports it."""
