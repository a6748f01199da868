"""The health of training: monitors, alarms over them, and guards that end a run which cannot learn."""
