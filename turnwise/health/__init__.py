"""Whether training is healthy: monitors, alarms over them, and guards that end a run which cannot learn."""
