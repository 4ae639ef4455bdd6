#!/usr/bin/env bash
# Lists the commands of the Makefile: all of them in their groups, with the variables, or those named alone.
#
#   scripts/help.sh [TARGET]...
set -euo pipefail
cd "$(dirname "$0")/.."
awk -F ':.*## ' -v names="$*" '
    names == "" && /^##@ / { print "\n" substr($0, 5) }
    /^[a-z-]+:.*## / && (names == "" || index(" " names " ", " " $1 " ")) {
        line = sprintf("  make %-18s", $1)
        n = split($2, words, " ")
        for (i = 1; i <= n; i++) {
            if (length(line words[i]) > 99) { print line; line = sprintf("%25s", "") }
            line = line " " words[i]
        }
        print line
    }' Makefile
[ $# -gt 0 ] || { echo && sed -n 's/^#   /  /p' Makefile; }
