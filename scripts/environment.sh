#!/usr/bin/env bash
# Makes a virtual environment if it is not there, and installs into it.
#
#   scripts/environment.sh FOLDER PYTHON [ARGUMENT OF pip install]...
#   scripts/environment.sh FOLDER PYTHON --each FILE    the packages in FILE one by one: one that does not build must not
#                                                       keep the others away
set -euo pipefail
folder=$1 python=$2
shift 2

# One at a time, because `make test` prepares several things at once.
install() {
    flock "$folder/.stamps" "$folder/bin/python" -m pip --quiet --disable-pip-version-check install "$@"
}

if [ ! -x "$folder/bin/python" ]; then
    if [ -z "$python" ]; then
        echo "No CPython >= 3.10 with the module venv found${PYTHON_GIVEN:+ as $PYTHON_GIVEN}: install one, or choose with PYTHON=."
        exit 1
    fi
    "$python" -m venv "$folder"
    mkdir -p "$folder/.stamps"
    install 'pip>=25.1'
fi
mkdir -p "$folder/.stamps"
if [ "${1-}" != --each ]; then
    [ $# -eq 0 ] || install "$@"
    exit
fi
missing=()
while read -r package; do
    case $package in '' | '#'*) continue ;; esac
    echo "== $package"
    install "$package" </dev/null || missing+=("$package")
done <"$2"
[ ${#missing[@]} -eq 0 ] || { echo "Not installed: ${missing[*]}. RIVALS= chooses among the others."; exit 1; }
