#!/usr/bin/env bash
# Builds the fuzz targets and runs them, from the seeds of tests/corpus.
#
#   scripts/fuzz.sh [--repeatable] 'TARGET...' [ARGUMENT OF LIBFUZZER...]
#
# Without --repeatable, each run continues from the finds of earlier ones in fuzz/corpus.
# With it, a run with the same -seed and -runs tries the same inputs on every machine, so that what CI finds, a developer
# finds too: it begins from the seeds alone in the order of their names, at fixed addresses (libFuzzer's mutations depend
# on those of comparisons), and does not read its finds again (which depends on the time).
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

repeatable=
if [ "$1" = --repeatable ]; then
    repeatable=yes
    shift
fi
read -ra targets <<<"$1"
shift
folder=$(./build.sh fuzzing "${targets[@]}")

runner=()
if [ -n "$repeatable" ]; then
    if setarch --addr-no-randomize true 2>/dev/null; then
        runner=(setarch --addr-no-randomize)
    else
        echo "setarch cannot fix addresses here: other inputs than elsewhere are tried."
    fi
fi

scratch=
[ -z "$repeatable" ] || { scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT; }
for target in "${targets[@]}"; do
    echo "== $target"
    mkdir -p "artifacts/$target"
    CORPUS=${scratch:-corpus} ./seed.sh "$target"
    corpus=corpus/$target options=()
    if [ -n "$repeatable" ]; then
        corpus=$scratch/$target.finds options=(-reload=0 "-seed_inputs=@$scratch/list")
        mkdir "$corpus"
        find "$scratch/$target" -type f | LC_ALL=C sort | paste -sd, >"$scratch/list"
    fi
    "${runner[@]}" "$folder/$target" "$corpus" -dict=http1.dict -print_final_stats=1 \
        "-artifact_prefix=artifacts/$target/" "${options[@]}" "$@"
done
