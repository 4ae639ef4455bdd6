#!/bin/sh
# Copies the files of the packages that CPython needs at run time into a folder: the root of a small image.
#
#   copy_packages.sh FOLDER [PACKAGE]...    further packages, such as libpq5 for a database
#
# Runs in Debian 13. Documentation, translations and what only a package manager reads stay behind.
set -eu
folder=$1
shift
packages="base-files base-passwd netbase media-types tzdata ca-certificates
    libc6 libgcc-s1 zlib1g libbz2-1.0 liblzma5 libzstd1 libexpat1 libffi8 libssl3t64 libsqlite3-0 libuuid1
    python3 python3-minimal libpython3-stdlib
    python3.13 python3.13-minimal libpython3.13-minimal libpython3.13-stdlib"

mkdir -p "$folder"
for package in $packages "$@"; do
    dpkg-query --listfiles "$package"
done | sort -u | grep -Ev '^/(\.$|usr/share/(doc|man|locale|lintian|info|bug|pixmaps|applications|binfmts)|usr/lib/.*/gconv)' \
    | sed 's|^/||' | tar --create --directory / --no-recursion --files-from - | tar --extract --directory "$folder"

# What the packages made when they were installed: compiled modules, certificates, and the cache of the linker.
find /usr/lib/python3.13 /usr/lib/python3 -name '*.pyc' -print | while read -r compiled; do
    source=$(echo "$compiled" | sed 's|__pycache__/\(.*\)\.cpython-313\.pyc$|\1.py|')
    if [ -e "$folder$source" ]; then echo "${compiled#/}"; fi
done | tar --create --directory / --files-from - | tar --extract --directory "$folder"
cp -a /etc/ssl/certs "$folder/etc/ssl/"
cp -a /etc/ld.so.conf /etc/ld.so.conf.d "$folder/etc/"
printf 'root:x:0:0:root:/root:/usr/sbin/nologin\nkirsch:x:10001:10001::/nonexistent:/usr/sbin/nologin\n' >"$folder/etc/passwd"
printf 'root:x:0:\nkirsch:x:10001:\n' >"$folder/etc/group"
mkdir -p "$folder/tmp" "$folder/proc" "$folder/dev" "$folder/sys"
chmod 1777 "$folder/tmp"
ldconfig -r "$folder"
