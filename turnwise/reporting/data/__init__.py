"""What a report tells, without how it looks."""
