"""What only writes this repository's own pages: claims, the credit study, the calibration of alarms."""
