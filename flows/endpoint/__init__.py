"""The endpoint that records outside agents: `turnwise record`."""
