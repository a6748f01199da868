#!/bin/sh
# Resolve pyproject.toml for the CPU again: lock.sh LOCK. Run it after changing a dependency, and commit the result.
set -eu
uv pip compile pyproject.toml --extra cpu --extra worlds --extra dev --overrides "$(dirname "$0")/overrides.txt" \
    --python-version 3.11 --no-header --no-annotate --no-emit-find-links -o "$1"
