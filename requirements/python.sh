#!/bin/sh
# Print the Python that Turnwise is set up with: python.sh. Where PYTHON is set it is the only one that is looked at.
#
# 3.11 comes first: what lies in results/ was made with it. A name on the PATH proves nothing (pyenv has one for every
# version that it knows of), so each is run, and must be able to make an environment.
set -eu
found=
for name in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    version=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $version in
        3.11 | 3.12 | 3.13)
            if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
                command -v "$name"
                exit
            fi
            found="$found, $name, which is $version but lacks the module venv (Debian's package python$version-venv)"
            ;;
        *) found="$found, $name, which is $version" ;;
    esac
done
found=${found#, }
echo "Turnwise needs Python 3.11, 3.12 or 3.13; found ${found:-none}${PYTHON:+ as PYTHON=$PYTHON}." \
    "Install one, or say where it is: make PYTHON=/path/to/python3.11" >&2
exit 1
