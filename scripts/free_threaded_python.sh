#!/usr/bin/env bash
# Builds a free-threaded CPython (no GIL) where no package of one is available, from the newest sources that can be
# downloaded: those that a Debian archive still holds of 3.15 and 3.14, or a 3.14 release that is known by its checksum.
#
#   scripts/free_threaded_python.sh PREFIX    e.g. ~/.local/python3.14t; afterwards PATH=PREFIX/bin:$PATH make test-free
#   MIRROR=http://...                         another archive (default: http://deb.debian.org/debian)
#   VERSIONS='3.14'                           other versions to look for, the preferred one first
#   JOBS=1                                    compilers at a time (default: one for each processor)
#
# It needs apt (Debian, Ubuntu), cc, make, and the headers of OpenSSL, zlib, libffi, sqlite, bzip2 and xz. It takes seven
# minutes of processor time. apt gets lists and a cache of its own, which are deleted afterwards; the system's own
# configuration is not touched.
set -euo pipefail

MIRROR=${MIRROR:-http://deb.debian.org/debian}
# Not 3.13: its free-threaded build was experimental, and PyO3 no longer supports it.
VERSIONS=${VERSIONS:-3.15 3.14}
# From the newest to the oldest that may have one of them. A mirror need not have all.
SUITES=${SUITES:-experimental sid testing stable}
KEYRING=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
APT_HELPER=${APT_HELPER:-/usr/lib/apt/apt-helper}
# The release to fall back on, as python.org publishes it and as Ubuntu keeps it.
KNOWN=3.14.4
KNOWN_SHA256=d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8
KNOWN_URLS=("https://www.python.org/ftp/python/$KNOWN/Python-$KNOWN.tar.xz"
    "http://archive.ubuntu.com/ubuntu/pool/main/p/python3.14/python3.14_$KNOWN.orig.tar.xz")

fail() {
    echo "free_threaded_python.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] && [[ $1 != -* ]] || {
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
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
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
cd "$work"

# Sets `chosen` to what was downloaded from the Debian archive, and `tarball` to the file.
download_from_debian() {
    local suite suites="" minor package version
    # Without the keyring, as on Ubuntu, apt cannot verify the sources.
    if [ ! -f "$KEYRING" ]; then
        echo "skipping $MIRROR: $KEYRING is missing (apt-get install debian-archive-keyring)" >&2
        return 1
    fi
    # One suite at a time, because apt gives up all of them when one is missing.
    for suite in $SUITES; do
        echo "deb-src [signed-by=$KEYRING] $MIRROR $suite main" >sources.list
        if apt-get "${apt[@]}" update >update.log 2>&1 && [ ! -s update.log ]; then
            suites+=" $suite"
        else
            echo "skipping suite $suite: $(head -n 1 update.log)" >&2
        fi
    done
    for suite in $suites; do
        echo "deb-src [signed-by=$KEYRING] $MIRROR $suite main"
    done >sources.list
    [ -n "$suites" ] && apt-get "${apt[@]}" update >update.log 2>&1 || return 1
    # An archive's index may name versions whose files were deleted: try the next one then.
    for minor in $VERSIONS; do
        package=python$minor
        while read -r version; do
            if apt-get "${apt[@]}" source --download-only "$package=$version" >source.log 2>&1 </dev/null; then
                tarball=$(echo "$work"/*.orig.tar.*z)
                chosen="$package $version"
                [ -f "$tarball" ] && return 0
            fi
            echo "$package $version cannot be downloaded: $(grep -m 1 . source.log || true)" >&2
            rm -f ./*.tar.* ./*.dsc
        done < <(apt-cache "${apt[@]}" showsrc "$package" 2>/dev/null | sed -n 's/^Version: //p' | sort -Vru)
    done
    return 1
}

# The same of the known release. apt's helper verifies the checksum.
download_known() {
    local url
    for url in "${KNOWN_URLS[@]}"; do
        tarball=$work/python.orig.tar.xz
        chosen="$KNOWN from $url"
        "$APT_HELPER" "${apt[@]}" -o Acquire::http::Timeout=30 -o Acquire::Retries=0 \
            download-file "$url" "$tarball" "SHA256:$KNOWN_SHA256" >source.log 2>&1 && return 0
        echo "$url cannot be downloaded: $(grep -m 1 . source.log || true)" >&2
    done
    return 1
}

download_from_debian || download_known || fail "no sources of CPython $VERSIONS or $KNOWN can be downloaded; see above"

echo "building CPython $chosen without the GIL, into $prefix"
mkdir source
tar -xf "$tarball" -C source --strip-components 1
cd source
./configure --quiet --disable-gil --prefix="$prefix" --with-ensurepip=install >"$work/make.log" 2>&1 || {
    tail -n 30 "$work/make.log" >&2
    fail "configure failed"
}
# CPython's Makefile needs make's built-in rules, which the Makefile that called this has turned off.
unset MAKEFLAGS MFLAGS
make -s -j"${JOBS:-$(nproc)}" >"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; fail "it does not compile"; }
make -s install >>"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; fail "it cannot be installed"; }
"$prefix/bin/python3" -c 'import sys, ssl, sqlite3, ctypes; assert not sys._is_gil_enabled(); print(sys.version)'
echo "For the tests: PATH=$prefix/bin:\$PATH make test-free"
