#!/usr/bin/env bash
# Installs PostgreSQL and MariaDB, where it may (as root, or with a sudo that asks nothing, and with apt-get). The tests
# start servers of their own; those that the packages would start are not. Never fails: the tests say what they lack.
set -u

export PATH="$PATH:/usr/sbin"
packages=()
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || packages+=(postgresql)
command -v mariadbd >/dev/null || packages+=(mariadb-server)
[ "${#packages[@]}" -eq 0 ] && exit 0

root=()
if ! command -v apt-get >/dev/null; then
    echo "Not installed: ${packages[*]} (there is no apt-get here)."
    exit 0
elif [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true >/dev/null 2>&1; then
        echo "Not installed: ${packages[*]} (installing needs root, or a sudo that asks nothing)."
        exit 0
    fi
    root=(sudo -n)
fi

apt() {
    timeout 300 ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >/dev/null 2>&1
}

# Without this file Debian's packages start a server, which no test uses.
policy=/usr/sbin/policy-rc.d
made=""
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | ${root[@]+"${root[@]}"} tee "$policy" >/dev/null && ${root[@]+"${root[@]}"} chmod +x "$policy" && made=1
fi
echo "Installing for the tests: ${packages[*]}"
apt install -y --no-install-recommends "${packages[@]}" || { apt update && apt install -y --no-install-recommends "${packages[@]}"; } ||
    echo "apt-get could not install ${packages[*]}."
[ -n "$made" ] && ${root[@]+"${root[@]}"} rm -f "$policy"
exit 0
