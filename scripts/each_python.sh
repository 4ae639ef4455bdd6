#!/usr/bin/env bash
# Runs targets of make with each Python that is found, in environments of its own: .venvs/X.Y, .venvs/query-X.Y and
# .venvs/web-X.Y.
#
#   scripts/each_python.sh KIND... -- TARGET...
#
# KIND: cpython   each CPython >= 3.10, free-threaded ones too
#       pypy      the first PyPy >= 3.10
#       free      the newest free-threaded CPython; without one, it is built in target/python-free from source, which takes
#                 seven minutes of processor time
set -uo pipefail
cd "$(dirname "$0")/.." || exit

found=
while [ "$1" != -- ]; do
    case $1 in
    cpython)
        found+=$(.ci/pythons)$'\n'
        for version in 3.10 3.11 3.12 3.13 3.14 3.14t 3.15 3.15t; do
            grep -q "^$version " <<<"$found" || echo "Not tested: CPython $version is not on PATH and not in pyenv."
        done
        ;;
    pypy)
        found+=$(.ci/pythons --pypy)$'\n'
        grep -q ^pypy <<<"$found" || echo "Not tested: no PyPy >= 3.10 is on PATH. To get one: pyenv install pypy3.11"
        ;;
    free)
        PATH=$PWD/target/python-free/bin:$PATH
        .ci/pythons | grep -q 't ' || VERSIONS=3.14 scripts/free_threaded_python.sh target/python-free
        found+=$(.ci/pythons | grep 't ' | tail -n 1)$'\n'
        ;;
    esac
    shift
done
shift

failed=
[[ $found == *[a-z]* ]] || failed=" there is no such Python"
while read -r version python; do
    [ -n "$version" ] || continue
    echo "== Python $version ($python)"
    for target in "$@"; do
        make "$target" VENV=.venvs/"$version" QUERY_VENV=.venvs/query-"$version" WEB_VENV=.venvs/web-"$version" \
            PYTHON="$python" </dev/null || failed+=" $target ($version)"
    done
done <<<"$found"
[ -z "$failed" ] || { echo "Failed:$failed"; exit 1; }
