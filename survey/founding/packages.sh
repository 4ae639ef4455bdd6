#!/usr/bin/env bash
#   packages.sh [PACKAGE]...     these instead
#
# Installs the system programs and headers that the founding surveys use, where it may (as root, or with a sudo that
# asks nothing, and with apt-get). What cannot be had is told, and the servers that need it take no part: each report
# lists them with the reason.
set -u

packages=(apache2-utils apache2 apache2-dev lighttpd libev-dev pypy3 pypy3-dev pypy3-venv python3-dev python3-venv
    build-essential)
[ $# -eq 0 ] || packages=("$@")

missing() {
    local package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
    done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "No apt-get here. For all servers to take part, install what Debian calls: ${packages[*]}"
    exit 0
fi
mapfile -t wanted < <(missing)
[ ${#wanted[@]} -eq 0 ] && exit 0
root=()
if [ "$(id -u)" -ne 0 ]; then
    root=(sudo -n)
    sudo -n true 2>/dev/null || { echo "Not installed, which needs root: apt-get install ${wanted[*]}"; exit 0; }
fi
echo "Installing for the surveys: ${wanted[*]}"
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq)
"${apt[@]}" update >/dev/null
# One by one: a package that one release lacks must not keep the others away.
for package in "${wanted[@]}"; do
    "${apt[@]}" install -y --no-install-recommends "$package" >/dev/null 2>&1 </dev/null
done
mapfile -t wanted < <(missing)
[ ${#wanted[@]} -eq 0 ] || echo "Not installed: ${wanted[*]}. The reports say which servers took no part for it."
exit 0
