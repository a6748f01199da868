"""Stages of bookkeeping: monitors, probes, alarms and the horizon."""
