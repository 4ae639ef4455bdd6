#!/usr/bin/env bash
# Unpacks packages of a newer Debian, with all that they depend on, into a folder, without installing them.
#
#   scripts/debian_unpack.sh FOLDER PACKAGE...      e.g. target/nginx/root nginx
#   MIRROR=http://...                               another archive (default: http://deb.debian.org/debian)
#   SUITE=forky                                     another suite (default: sid)
#
# It needs apt and dpkg (Debian, Ubuntu) and the keyring of the archive, and no rights: apt gets lists, a cache and a state
# of its own. The programs need the C library beside them: debian_pythons.sh patches them, newer_nginx.sh wraps one.
set -euo pipefail

MIRROR=${MIRROR:-http://deb.debian.org/debian}
SUITE=${SUITE:-sid}
KEYRING=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

fail() {
    echo "debian_unpack.sh: $*" >&2
    exit 1
}

[ $# -ge 2 ] && [[ $1 != -* ]] || {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || fail "$program is missing: this works on Debian and Ubuntu only"
done
[ -f "$KEYRING" ] || fail "$KEYRING is missing: apt-get install debian-archive-keyring"
root=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial}
: >"$work/status"
echo "deb [signed-by=$KEYRING] $MIRROR $SUITE main" >"$work/sources.list"
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o Debug::NoLocking=1
    -o Acquire::http::Timeout=60 -o Acquire::Retries=2)
apt-get "${apt[@]}" update >"$work/log" 2>&1 || fail "no index of $MIRROR $SUITE: $(head -n 1 "$work/log")"
apt-get "${apt[@]}" install --yes --download-only --no-install-recommends "$@" >"$work/log" 2>&1 ||
    fail "$* cannot be downloaded from $MIRROR $SUITE: $(grep -m 1 '^E:' "$work/log")"
rm -rf "$root"
mkdir -p "$root"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$root"
done
