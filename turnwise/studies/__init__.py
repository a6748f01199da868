"""Studies that write this repository's own pages: claims of papers, the credit study, the calibration of alarms."""
