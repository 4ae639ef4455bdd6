#!/usr/bin/env bash
#   tests/system_packages.sh [PROGRAM:PACKAGE]...     these alone
#
# Installs the system programs that some tests drive, where it may (as root, or with a sudo that asks nothing, and with
# apt-get). Says nothing when all are there, one line when some cannot be had; the tests that need those then skip and
# say so. Never fails: what it cannot do is no failure of the code under test.
set -u

# program:package
wanted=(litmus:litmus git:git wrk:wrk curl:curl ab:apache2-utils logrotate:logrotate
    zsh:zsh fish:fish mandoc:mandoc man:man-db haproxy:haproxy
    ip:iproute2)
# Web servers bring services of their names along, which nobody wants on a machine that would start them. Some modules
# are packages of their own.
[ -d /run/systemd/system ] || wanted+=(nginx:nginx-light /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
    apache2:apache2 lighttpd:lighttpd caddy:caddy /usr/lib/apache2/modules/mod_fcgid.so:libapache2-mod-fcgid)
needed="The tests that need them will skip."
if [ $# -gt 0 ]; then
    wanted=("$@")
    needed="They are needed here: apt-get install them."
fi

missing_packages() {
    local pair
    for pair in "${wanted[@]}"; do
        [ -e "${pair%%:*}" ] || command -v "${pair%%:*}" >/dev/null 2>&1 || echo "${pair##*:}"
    done
}

apt() {
    timeout 300 ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=60 "$@" </dev/null >/dev/null 2>&1
}

mapfile -t packages < <(missing_packages)
[ "${#packages[@]}" -eq 0 ] && exit 0

why=""
root=()
if ! command -v apt-get >/dev/null 2>&1; then
    why="there is no apt-get here"
elif [ "$(id -u)" -ne 0 ]; then
    if sudo -n true >/dev/null 2>&1; then
        root=(sudo -n)
    else
        why="installing needs root, or a sudo that asks nothing"
    fi
fi

if [ -z "$why" ]; then
    why="apt-get could not install them"
    echo "Installing: ${packages[*]}"
    if ! apt install -y --no-install-recommends "${packages[@]}"; then
        # The package lists may be old or absent; and one unknown package must not keep the others away.
        apt update
        for package in "${packages[@]}"; do
            apt install -y --no-install-recommends "$package"
        done
    fi
    hash -r
    mapfile -t packages < <(missing_packages)
fi

if [ "${#packages[@]}" -ne 0 ]; then
    echo "Not installed: ${packages[*]} ($why). $needed"
fi
exit 0
