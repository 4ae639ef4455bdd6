#!/usr/bin/env bash
# Runs the tests of `make test` at once: those of Rust and of kirsch-query have the processors that the build and the
# Python tests leave free. Their output is shown when they have ended.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

echo "The tests of Rust and of kirsch-query run beside the others: target/test-rust.log, target/test-query.log"
mkdir -p target
nice -n 10 make test-rust >target/test-rust.log 2>&1 &
rust=$!
nice -n 5 make test-query-quick >target/test-query.log 2>&1 &
query=$!
trap 'kill $rust $query 2>/dev/null; exit 130' INT TERM
failed=
make test-python || failed+=" test-python"

# end PROCESS NAME PATTERN: waits for tests, and prints the lines of their log that match, or all if they failed.
end() {
    if wait "$1"; then
        grep -E "$3" "target/test-$2.log"
    else
        cat "target/test-$2.log"
        failed+=" $2"
    fi
}
echo "Waiting for the tests of Rust and of kirsch-query."
end $query query '^RERUN| passed'
end $rust rust '^(test result|test .* FAILED$|FAILED AT FIRST)'
[ -z "$failed" ] || { echo "Failed:$failed"; exit 1; }
