#!/usr/bin/env bash
# Builds the root of the small image in docs/deploy/container without Docker, serves from it as its user, asks its health,
# and prints its size.
#
#   scripts/release/image.sh DIST    DIST has the wheels; the Debian root target/roots/trixie-amd64 is made if missing
set -euo pipefail
cd "$(dirname "$0")/../.."
LIMIT_MB=100
recipe=docs/deploy/container image=$PWD/target/image build=$PWD/target/roots/trixie-amd64

[ -e "$build/made" ] || scripts/release/roots.sh "$1" trixie-amd64
rm -rf "$image" "$build/build"
mkdir -p "$build/build"
cp $recipe/copy_packages.sh "$build/build/"
cp -r "$1" "$build/build/dist"

# in_root FOLDER USER COMMAND...: with processes of its own, which end with it.
in_root() {
    local folder=$1 user=$2
    shift 2
    # shellcheck disable=SC2016 # the inner shell expands these
    unshare --mount --pid --fork --kill-child bash -c '
        mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" &&
        exec env -i PATH=/venv/bin:/usr/bin:/usr/sbin LANG=C.UTF-8 chroot "$@"' "$folder" "--userspec=$user" "$folder" "$@"
}

# The steps of the Dockerfile, with the wheels of DIST.
in_root "$build" 0:0 sh -ec '
    rm -rf /venv /image
    python3 -m venv --without-pip /venv && python3 -m venv /build/pip
    /build/pip/bin/pip --disable-pip-version-check --quiet --python /venv/bin/python install --no-cache-dir \
        --index-url file:///build/dist/simple kirsch
    sh /build/copy_packages.sh /image && cp -a /venv /image/venv'
mv "$build/image" "$image"
cp scripts/release/image_check.py "$image/tmp/check.py"
in_root "$image" 10001:10001 python /tmp/check.py
rm "$image/tmp/check.py"
megabytes=$(du --summarize --bytes "$image" | awk '{print int($1 / 1e6)}')
packed=$(tar --create --directory "$image" . | gzip | wc --bytes | awk '{print int($1 / 1e6)}')
echo "The image has $megabytes MB, and $packed MB compressed, with Python."
[ "$megabytes" -lt $LIMIT_MB ] || {
    echo "That is more than $LIMIT_MB MB."
    exit 1
}
