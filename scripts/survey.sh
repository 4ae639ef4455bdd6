#!/usr/bin/env bash
# Runs surveys one after the other and copies their reports to docs/survey. The raw data stay in target/survey; what was
# measured is not measured again. The packages in debian.txt beside the first survey are installed if that is possible; a
# server that lacks something takes no part, and the report gives the reason.
#
#   scripts/survey.sh KIRSCH 'FILE...' [ARGUMENT OF kirsch survey]...
set -uo pipefail
cd "$(dirname "$0")/.." || exit
kirsch=$1 files=$2
shift 2
read -ra packages <"$(dirname "${files%% *}")/debian.txt"
tests/system_packages.sh "${packages[@]}"
failed=
for file in $files; do
    name=$(basename "$file" .toml)
    echo "== $name"
    "$kirsch" survey "$file" --out "target/survey/$name" "$@" || failed+=" $name"
    mkdir -p "docs/survey/$name"
    cp "target/survey/$name"/survey.{txt,html} "docs/survey/$name" || failed+=" $name"
done
[ -z "$failed" ] || { echo "Not all went well in:$failed"; exit 1; }
