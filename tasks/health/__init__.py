"""Stages that follow the health of training: monitors, probes, alarms and the horizon."""
