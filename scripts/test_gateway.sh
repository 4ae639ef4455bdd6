#!/usr/bin/env bash
# Runs the Rust tests of the gateway, which link the interpreter's libpython. Without one, only the tests of files that know
# no Python run.
#
#   scripts/test_gateway.sh PYTHON COMMAND...    COMMAND begins with `cargo test`, or with what repeats it
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
if "$python" .ci/libpython >/dev/null; then
    exec "$@" -p gateway --lib --test without_python
fi
echo "Not run: the gateway's tests with an interpreter. The others follow."
export PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=target/no-libpython
exec "$@" -p gateway --test without_python
