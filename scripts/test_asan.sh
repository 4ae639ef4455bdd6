#!/usr/bin/env bash
# Builds the server with AddressSanitizer and runs quick tests against it, in .venvs/asan and target/asan. The sanitizer
# ends a process that reads or writes freed memory, or memory beside an object. Python allocates by malloc meanwhile, so
# that the sanitizer knows Python's objects too.
#
#   scripts/test_asan.sh PYTHON [pytest arguments]    PYTHON makes the virtual environment; without arguments, the tests
#                                                     below run
#
# It needs the sanitizer's runtime of GCC (libasan, part of Debian's package gcc) and any stable Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
shift
# Not with gevent: a switch of greenlets copies parts of the stack away and back, which the sanitizer reports wrongly.
# Not the test that measures memory: the sanitizer keeps what is freed for a while.
[ $# -gt 0 ] || set -- -m 'not slow' -k 'not gevent and not as_fast_as_the_client_reads' -n 2 \
    tests/test_{http,wsgi,websocket,websocket_wsgi,asgi,asgi_messages,asgi_scopes,asgi_tasks,asgi_channels}.py \
    tests/test_{client_socket,deadlines,disconnected,end_of_connection,gateways,mounts,mounted_asgi,proxies,racing}.py \
    tests/test_{refusals,repeated_heads,static,streaming,threads,turns}.py

runtime=$(cc -print-file-name=libasan.so)
[ -f "$runtime" ] || {
    echo "Not tested: GCC's libasan.so is missing (Debian: apt-get install libgcc-12-dev or gcc)."
    exit 1
}
venv=.venvs/asan
scripts/environment.sh $venv "$python" --group build --group test

# -Z options are open to a stable compiler with RUSTC_BOOTSTRAP, so that no second toolchain is needed. With a target
# named, cargo keeps the flags from build scripts and macros, which run without the runtime. What ships has no debug
# assertions.
host=$(rustc -vV | sed -n 's/^host: //p')
wheels=$PWD/target/asan/wheels
rm -rf "$wheels"
(
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$PWD/target/asan CARGO_BUILD_TARGET=$host
    export PYO3_PYTHON=$PWD/$venv/bin/python CARGO_PROFILE_TESTING_DEBUG_ASSERTIONS=false
    cd packages/kirsch
    "../../$venv/bin/maturin" build --quiet --profile testing --interpreter "$PYO3_PYTHON" --compatibility linux --out "$wheels"
)
scripts/environment.sh $venv "$python" --force-reinstall --no-deps "$wheels"/*.whl
module=$($venv/bin/python -c 'import importlib.util as u; print(u.find_spec("kirsch._native").origin)' 2>/dev/null ||
    ls $venv/lib/python3*/site-packages/kirsch/_native*.so)
grep -q __asan_report_load "$module" || {
    echo "$module was built without the sanitizer."
    exit 1
}

# What the interpreter keeps until its end is no leak of ours. A report is a failure of the process, and so of its test.
export LD_PRELOAD=$runtime PYTHONMALLOC=malloc
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99:detect_stack_use_after_return=0
if $venv/bin/python -c 'import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p
p = c.malloc(64); c.free(ctypes.c_void_p(p)); ctypes.memmove(ctypes.c_void_p(p), b"x" * 64, 64)' 2>/dev/null; then
    echo "The sanitizer does not see a use of freed memory: its runtime is not in force."
    exit 1
fi
exec $venv/bin/python -m pytest "$@"
