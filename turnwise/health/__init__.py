"""The health of training: its first signal, monitors, alarms over them, and guards that end a run that cannot learn."""
