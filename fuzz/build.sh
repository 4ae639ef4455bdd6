#!/usr/bin/env bash
# Builds programs of this crate and prints the folder that holds them. libFuzzer comes with the crate libfuzzer-sys, the
# instrumentation is LLVM's in rustc: any stable compiler will do, and a C++ compiler. There is no sanitizer: it would be
# many times slower, and what is fuzzed has no unsafe code.
#
#   fuzz/build.sh fuzzing|steps|nanoseconds PROGRAM...
#
# fuzzing: for libFuzzer; steps: counts basic blocks; nanoseconds: without instrumentation
set -euo pipefail
cd "$(dirname "$0")"
kind=$1 folder=target/$1 flags=
shift
case $kind in
fuzzing) folder=target coverage="level=4 inline-8bit-counters pc-table trace-compares" ;;
steps) coverage="level=3 trace-pc-guard" ;;
nanoseconds) coverage= ;;
esac
if [ -n "$coverage" ]; then
    flags="--cfg $kind -Ccodegen-units=1 -Cpasses=sancov-module"
    for option in $coverage; do flags+=" -Cllvm-args=-sanitizer-coverage-$option"; done
fi
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags cargo build --release --target "$host" --target-dir "$folder" "${@/#/--bin=}"
echo "$PWD/$folder/$host/release"
