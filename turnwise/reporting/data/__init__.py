"""The data of reports, independent of how they are rendered."""
