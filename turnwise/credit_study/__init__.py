"""The credit study: every credit rule compared with the truth, which replays of each state of an episode give."""
