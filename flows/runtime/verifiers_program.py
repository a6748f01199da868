"""The service of an environment of verifiers, run in the Python environment that `verifiers_service` has set up.

Its one argument is JSON: the options of `serve`, with `token_variable` for the token and the limits as plain numbers.
"""

from __future__ import annotations

import json
import os
import sys

from envs.service.limits import ServiceLimits
from envs.service.server import serve
from turnwise.store.plugin_identity import world_digest


def main() -> None:
    """Serve until a signal ends it; an option that the service refuses ends it with what must hold."""
    options = json.loads(sys.argv[1])
    token = os.environ.get(options.pop("token_variable", ""))
    limits = ServiceLimits(**options.pop("limits", {}))
    try:
        serve(**options, token=token, limits=limits, content_of=world_digest)
    except ValueError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
