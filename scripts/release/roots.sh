#!/usr/bin/env bash
# Installs a release in roots that have Python and neither a compiler nor Rust, and serves with it.
#
#   scripts/release/roots.sh DIST ROOT... [-- ARGUMENT OF smoke.py]...
#
# ROOT is SUITE-PROCESSOR: trixie-amd64 (Debian 13, CPython 3.13), bookworm-amd64 (12, 3.11), trixie-arm64, ... A root is
# made once, by debootstrap, in target/roots (90 s; of another processor ten minutes, under qemu-user). TESTS='tests/...'
# runs those tests in each root too, with what they need as wheels.
set -euo pipefail
cd "$(dirname "$0")/../.."

MIRROR=${MIRROR:-http://deb.debian.org/debian}

# Says in one line what is missing, and how to get it.
require() {
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || {
        echo "Not tested: $1 is missing (Debian: apt-get install $2)."
        exit 1
    }
}

# Lets the kernel start programs of another processor.
emulate() {
    local name=$1
    require "qemu-$name-static" qemu-user-static
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    [ -e "/proc/sys/fs/binfmt_misc/qemu-$name" ] || {
        require update-binfmts binfmt-support
        update-binfmts --enable "qemu-$name"
    }
}

make_root() {
    local suite=${1%-*} processor=${1##*-} folder=target/roots/$1
    [ "$processor" = "$(dpkg --print-architecture)" ] || case $processor in
    arm64) emulate aarch64 ;;
    *)
        echo "Not tested: no emulator is known for $processor."
        exit 1
        ;;
    esac
    [ ! -e "$folder/made" ] || return 0
    require debootstrap debootstrap
    echo "Making $folder"
    rm -rf "$folder"
    mkdir -p target/roots
    debootstrap --variant=minbase --arch="$processor" --include=python3,python3-venv "$suite" "$folder" "$MIRROR" \
        >"$folder.log" 2>&1 || {
        tail -n 20 "$folder.log"
        exit 1
    }
    touch "$folder/made"
}

# Puts what the tests need beside the release, for the Python of the root.
collect_test_wheels() {
    local version
    version=$(chroot "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # A package that is not there for this processor is left out; its tests skip.
    local package platform=manylinux_2_28_$2
    for package in pytest pytest-timeout pytest-xdist pytest-rerunfailures websockets prometheus_client PyYAML; do
        .venvs/release/bin/python -m pip --quiet --disable-pip-version-check download --dest "$1/kirsch/wheels" \
            --only-binary=:all: --python-version "$version" --platform "$platform" --platform "manylinux2014_$2" "$package"
    done
}

dist=$1
shift
roots=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    roots+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ "$(id -u)" = 0 ] || {
    echo "Not tested: only root may change the root directory."
    exit 1
}

failed=
for root in "${roots[@]}"; do
    make_root "$root"
    folder=$PWD/target/roots/$root
    echo "== $root"
    rm -rf "$folder/kirsch"
    mkdir -p "$folder/kirsch/wheels"
    cp -r "$dist" "$folder/kirsch/dist"
    cp scripts/release/smoke.py "$folder/kirsch/"
    # A namespace of mounts and processes of its own, so that nothing stays behind.
    inside() {
        # shellcheck disable=SC2016 # the inner shell expands these
        unshare --mount --pid --fork --kill-child bash -c '
            mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/dev/shm" &&
            exec env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp LANG=C.UTF-8 chroot "$@"' "$folder" "$folder" "$@"
    }
    inside python3 /kirsch/smoke.py /kirsch/dist "$@" || failed+=" $root"
    [ -n "${TESTS-}" ] || continue
    processor=x86_64
    [ "${root##*-}" = amd64 ] || processor=aarch64
    collect_test_wheels "$folder" $processor
    git archive HEAD tests conftest.py pyproject.toml scripts packages/kirsch-bench Cargo.toml examples docs |
        tar -x -C "$folder/kirsch" --exclude=build_backend.py
    # shellcheck disable=SC2086 # a list of files
    inside bash -c 'cd /kirsch && python3 -m venv /kirsch/venv && venv/bin/pip install --quiet --no-index \
        --find-links wheels --find-links dist "kirsch[bench]" pytest pytest-timeout pytest-xdist pytest-rerunfailures \
        websockets prometheus_client PyYAML && venv/bin/python -m pytest -q -m "not slow" "$@"' tests $TESTS ||
        failed+=" $root (tests)"
done
[ -z "$failed" ] || {
    echo "Failed:$failed"
    exit 1
}
