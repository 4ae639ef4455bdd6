#!/usr/bin/env bash
# Installs the system programs that some tests and surveys drive, if it may (as root, or with a sudo that asks nothing,
# and with apt-get). Prints nothing if all are there, and one line if some cannot be installed; the tests that need those
# then skip and say so. Never fails: what it cannot do is no failure of the code under test.
#
#   tests/system_packages.sh                            all that the tests drive
#   tests/system_packages.sh [PROGRAM:]PACKAGE...       these alone; PROGRAM is a name on PATH or a pattern of a file
set -u

# PROGRAM:PACKAGE
wanted=(litmus:litmus git:git wrk:wrk curl:curl ab:apache2-utils logrotate:logrotate
    zsh:zsh fish:fish mandoc:mandoc man:man-db haproxy:haproxy
    ip:iproute2 redis-server:redis-server '/usr/lib/postgresql/*/bin/postgres:postgresql' nats-server:nats-server)
# Servers bring services of their names along, which nobody wants on a machine that would start them. Some modules
# are packages of their own.
[ -d /run/systemd/system ] || wanted+=(nginx:nginx-light /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
    sshd:openssh-server apache2:apache2 lighttpd:lighttpd caddy:caddy /usr/lib/apache2/modules/mod_fcgid.so:libapache2-mod-fcgid)
needed="The tests that need them will skip."
if [ $# -gt 0 ]; then
    wanted=("$@")
    needed="They are needed here: apt-get install them."
fi

export PATH="$PATH:/usr/sbin"

missing_packages() {
    local pair
    for pair in "${wanted[@]}"; do
        case $pair in
        *:*) compgen -G "${pair%%:*}" >/dev/null || command -v "${pair%%:*}" >/dev/null 2>&1 || echo "${pair##*:}" ;;
        *) dpkg-query -W -f '${Status}' "$pair" 2>/dev/null | grep -q 'install ok installed' || echo "$pair" ;;
        esac
    done
}

apt() {
    timeout 300 ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >/dev/null 2>&1
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
    # With this file Debian's packages start no services, which no test uses.
    policy=/usr/sbin/policy-rc.d made=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | ${root[@]+"${root[@]}"} tee "$policy" >/dev/null &&
            ${root[@]+"${root[@]}"} chmod +x "$policy" && made=yes
    fi
    if ! apt install -y --no-install-recommends "${packages[@]}"; then
        # The package lists may be old or absent; and one unknown package must not keep the others away.
        apt update
        for package in "${packages[@]}"; do
            apt install -y --no-install-recommends "$package"
        done
    fi
    [ -z "$made" ] || ${root[@]+"${root[@]}"} rm -f "$policy"
    hash -r
    mapfile -t packages < <(missing_packages)
fi

if [ "${#packages[@]}" -ne 0 ]; then
    echo "Not installed: ${packages[*]} ($why). $needed"
fi
exit 0
