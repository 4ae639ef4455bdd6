#!/usr/bin/env bash
# Unpacks an nginx that speaks HTTP/2 with the servers behind it (1.29.4 or later) from a newer Debian.
#
#   scripts/newer_nginx.sh FOLDER       e.g. target/nginx, where the tests look; afterwards FOLDER/bin/nginx runs it
set -euo pipefail

[ $# -eq 1 ] && [[ $1 != -* ]] || {
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
"$(dirname "$0")/debian_unpack.sh" "$folder/root" nginx
libraries=$(dirname "$(find "$folder/root/usr/lib" -name libc.so.6 -print -quit)")
loader=$(find "$libraries" -name 'ld-linux*' -print -quit)
printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" "$folder/root/usr/sbin/nginx" \
    >"$folder/bin/nginx"
chmod +x "$folder/bin/nginx"
"$folder/bin/nginx" -v
