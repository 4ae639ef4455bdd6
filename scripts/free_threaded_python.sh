#!/usr/bin/env bash
# Builds a free-threaded CPython 3.14 (one that may run without its lock) where no package of one can be had: from the
# sources that Debian keeps for its package python3.14, the newest that are there.
#
#   scripts/free_threaded_python.sh PREFIX    e.g. ~/.local/python3.14t; afterwards PATH=PREFIX/bin:$PATH make test-free
#
# It needs apt (Debian, Ubuntu), cc, make, and the headers of OpenSSL, zlib, libffi, sqlite, bzip2 and xz; takes some
# minutes; and leaves the system's own configuration alone: apt gets lists and a cache of its own, which are deleted.
set -euo pipefail

PACKAGE=python3.14
MIRROR=${MIRROR:-http://deb.debian.org/debian}
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "free_threaded_python.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] && [[ $1 != -* ]] || {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
for program in apt-get cc make tar; do
    command -v "$program" >/dev/null || fail "$program is missing"
done
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
[ ! -e "$prefix/bin/python3" ] || fail "there is a Python in $prefix already"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial}
# Without its keyring, as on Ubuntu, nothing vouches for the sources.
[ -f "$KEYRING" ] || fail "$KEYRING is missing: apt-get install debian-archive-keyring"
echo "deb-src [signed-by=$KEYRING] $MIRROR sid main" >"$work/sources.list"
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
apt-get "${apt[@]}" update

# An archive may have let go of some that its index still names.
cd "$work"
mapfile -t versions < <(apt-cache "${apt[@]}" showsrc "$PACKAGE" | sed -n 's/^Version: //p' | sort -Vru)
[ ${#versions[@]} -gt 0 ] || fail "$MIRROR has no sources of $PACKAGE"
for version in "${versions[@]}"; do
    apt-get "${apt[@]}" source --download-only "$PACKAGE=$version" && break
    echo "$PACKAGE $version cannot be had; trying the one before" >&2
    rm -f ./*.tar.* ./*.dsc
done
sources=(./*.orig.tar.*z)
[ -f "${sources[0]}" ] || fail "no version of $PACKAGE can be had from $MIRROR: tried ${versions[*]}"

mkdir source
tar -xf "${sources[0]}" -C source --strip-components 1
cd source
./configure --quiet --disable-gil --prefix="$prefix" --with-ensurepip=install
make -s -j"$(nproc)" >"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; fail "it does not compile"; }
make -s install >>"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; fail "it cannot be installed"; }
"$prefix/bin/python3" -c 'import sys, ssl, sqlite3, ctypes; assert not sys._is_gil_enabled(); print(sys.version)'
echo "For the tests: PATH=$prefix/bin:\$PATH make test-free"
