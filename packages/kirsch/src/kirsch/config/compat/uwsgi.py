"""uWSGI's options, with their equivalents in Kirsch. There are about a thousand; families are written with a star.

If several patterns match an option, the one with the most letters is used.
"""

from kirsch.config.compat import texts

_ROUTER = "use the proxy in front, such as nginx; Kirsch forwards no requests. --mount serves several applications"
_ROUTING = "use routes of the proxy in front, or a WSGI middleware"
_EMPEROR = "use a systemd unit for each application, which systemd starts and watches"
_CACHE = "use a cache beside the server, such as Redis or memcached"
_TASKS = "use a task queue such as Celery or RQ, in a service of its own"
_CRON = "use a systemd timer, or cron"
_DAEMONS = "use a systemd unit for each of them"
_NAMESPACES = "use the container, or options of a systemd unit such as PrivateTmp= and RestrictNamespaces="
_HOOKS = "use worker-start and worker-stop in kirsch.toml for Python, ExecStartPre= in a systemd unit for commands"
_CONFIG = "omit it; a settings file is plain TOML, without conditions and variables"
_PLUGINS = "omit it; nothing has to be loaded"
_LOGS = "--error-logfile and --access-logfile, and logrotate, which sends SIGUSR1"
_STANDARD = "omit it; Kirsch does this by itself"
_NOTHING = "omit it; Kirsch has no use for it"

OPTIONS = {
    "--http --http-socket --http11-socket --httprouter": "--bind HOST:PORT",
    "-s --socket --uwsgi-socket --map-socket --undeferred-shared-socket": "--bind uwsgi:unix:PATH; or unix:PATH for "
    "HTTP, with proxy_pass in place of uwsgi_pass",
    "--protocol --socket-protocol": texts.PROTOCOLS,
    "--fastcgi-* --scgi-* --suwsgi-socket --puwsgi-socket --raw-* --http-socket-modifier*": texts.PROTOCOLS,
    "--shared-socket -a --abstract-socket": "--bind fd://N, or --bind unix:PATH",
    "-C --chmod --chmod-socket": "--bind unix:PATH?mode=660",
    "--chown-socket": "--user and --group, whose the socket is",
    "-l --listen": "--backlog COUNT",
    "--reuse-port": "=",
    "--vacuum": "omit it; a unix socket is always removed at the end",
    "--http-keepalive --so-keepalive": "--keep-alive",
    "--http-timeout --http-connect-timeout --http-headers-timeout -z --socket-timeout --so-send-timeout": (
        "--header-timeout, --body-timeout and --write-timeout"
    ),
    "--socket-send-timeout --socket-write-timeout --so-write-timeout --chunked-input-timeout": (
        "--body-timeout and --write-timeout"
    ),
    "--http-enable-proxy-protocol --enable-proxy-protocol": texts.PROXY_PROTOCOL,
    "--http-websockets --websocket* --http-raw-body": texts.WEBSOCKETS,
    "--http-auto-chunked --http-chunked-input --http-manage-expect --http-buffer-size": _STANDARD,
    "--http-auto-gzip": texts.COMPRESSION,
    "--http-*": _ROUTER,
    "--https --https* --ssl-* --sni* --http-to-https": texts.TLS,
    "--fastrouter* --rawrouter* --sslrouter* --router-list --routers-list --zerg* --zergpool --farm": _ROUTER,
    "--subscri* --unsubscribe-* --start-unsubscribed --weight --auto-weight --force-gateway --upload-progress": _ROUTER,
    "--route* --error-route* --response-route* --final-route* --collect-header --pull-header": _ROUTING,
    "--response-header-collect --add-header --del-header --rem-header --error-page-*": _ROUTING,
    "--response-headers-limit": _STANDARD,
    "-w --module --wsgi": texts.MODULE,
    "--wsgi-file --file": "use the file: kirsch path/to/app.py",
    "--callable": "use the object behind the colon: kirsch module:object",
    "--mount": "=: /path=module:app",
    "--manage-script-name": "omit it; --mount /path=module:app sets SCRIPT_NAME",
    "--ignore-script-name": "omit it; --mount /path=module:app sets SCRIPT_NAME",
    "--need-app --no-default-app --catch-exceptions --max-apps": "omit it; that is the default",
    "--pecan --paste --paste-logger --ini-paste --ini-paste-logged --web3 --pump --wsgi-lite --py --py-*": _NOTHING,
    "--pp --pythonpath --python-path": "--pythonpath",
    "-H --home --pyhome --venv --virtualenv": "use the kirsch of that environment: venv/bin/kirsch",
    "--pyargv": "use arguments of a factory: kirsch 'module:create_app(\"prod\")'",
    "--py-autoreload --py-auto-reload --python-autoreload --python-auto-reload": texts.RELOAD,
    "--py-auto-reload-ignore": texts.RELOAD_EXCLUDE,
    "--import --pyimport --py-import --python-import --shared-*import --post-pymodule-alias --pymodule-alias": (
        "use an import in the application's module, or worker-start in kirsch.toml"
    ),
    "--python --python-* --pyrun --pyshell* --profiler --eval --no-site": _NOTHING,
    "-O --optimize -i --single-interpreter": _NOTHING,
    "-T --enable-threads --no-threads-wait --thread-stack*": "omit it; threads are always there; --threads says "
    "how many",
    "--wsgi-* --start_response-nodelay --async --ugreen* --loop* --loops-list": _NOTHING,
    "--gevent --gevent-*": "--driver gevent",
    "-p --processes --workers": "--workers",
    "--threads": "=",
    "--threads-stack*": "omit it; a thread's stack is the system's",
    "-M --master": "omit it; there is always a supervisor, but with --workers 0",
    "--lazy --lazy-apps": "omit it; that is the default, and --preload is the other way",
    "--cheap --cheaper*": "--min-workers and --max-workers",
    "--idle": "--inactivity-timeout",
    "--die-on-idle": "--inactivity-timeout, which ends the workers",
    "--die-on-term": "omit it; that is the default",
    "-t --harakiri": "--timeout",
    "--harakiri-* --no-harakiri-*": "--timeout and --graceful-timeout",
    "-R --max-requests": "--max-requests",
    "--max-requests-delta": "--max-requests-jitter",
    "--max-worker-lifetime": "--max-lifetime",
    "--max-worker-lifetime-delta": "--max-lifetime-jitter",
    "--min-worker-lifetime": _NOTHING,
    "--reload-on-rss --reload-on-as --evil-reload-on-*": "--max-memory; it counts what a worker does not share",
    "--reload-mercy --worker-reload-mercy": "--graceful-timeout",
    "--reload-on-exception* --exception-handler": "omit it; an exception ends one request, and is logged",
    "--reload-os-env": "omit it; a reload reads kirsch.toml anew, [env] too",
    "--reload-on-fd --brutal-reload-on-fd --fs-reload --fs-brutal-reload --fs-signal": "--touch-reload FILE",
    "--touch-reload": "=",
    "--touch-workers-reload --touch-chain-reload": "--touch-reload FILE",
    "--touch-logreopen --touch-logrotate --log-reopen": "use SIGUSR1, which opens the logs again",
    "--touch-*": "--touch-reload FILE, or a signal",
    "--reload --stop --ping* --signal* --suspend --resume --pause --connect-and-read --extract": (
        "use kill with the pid: HUP reloads, TERM stops; kirsch --help-all lists --pid-file"
    ),
    "-d --daemonize --daemonize2": texts.DAEMON,
    "--pidfile --pidfile2 --safe-pidfile*": "--pid-file",
    "--procname": "--process-name",
    "--procname-* --auto-procname": "--process-name; the role is shown by itself",
    "--uid --immediate-uid": "--user",
    "--gid --immediate-gid --add-gid": "--group",
    "--no-initgroups": "omit it; --user always sets the user's groups",
    "--umask": "=",
    "--chdir --chdir2 --force-cwd": "--chdir",
    "--env --unenv": "--env NAME=VALUE",
    "--envdir --early-envdir": "--env NAME=VALUE, or a table [env] in kirsch.toml",
    "--limit-as --limit-nproc --prio --cpu-affinity --never-swap --ksm --max-fd --cgroup --cgroup*": (
        "use options of a systemd unit, such as MemoryMax= and Nice="
    ),
    "--limit-post": "--limit-request-body",
    "--chunked-input-limit": "--limit-request-body",
    "-b --buffer-size": "--limit-request-head",
    "-v --max-vars": "--limit-request-fields",
    "--post-buffering --post-buffering-bufsize": "--body-memory; bodies are buffered unless --request-buffering is off",
    "--logto --logto2": "--error-logfile FILE",
    "--log-format --logformat --log-format-strftime --logformat-strftime": "--access-logformat, with gunicorn's atoms",
    "-L --disable-logging": "omit --access-logfile",
    "--log-slow": "--slow-request DURATION",
    "--log-syslog --rsyslog*": texts.SYSLOG,
    "--log* --req-logger --threaded-logger --not-alarm-log --not-log-alarm": _LOGS,
    "-m --memory-report": "use kirsch top, which shows the memory of each worker",
    "--stats* --carbon* --snmp* --nagios --rrdtool* --metric* --enable-metrics --no-metrics": texts.METRICS,
    "--mem-collector-freq": _NOTHING,
    "--alarm* --backlog-alarm --listen-queue-alarm --lq-alarm --segfault-alarm --alarms-list": texts.METRICS,
    "--static-map": "--static PATH=DIRECTORY",
    "--static-* --check-static* --fileserve-mode --file-serve-mode --mime* --honour-range": texts.STATIC,
    "--offload-thread*": "omit it; wsgi.file_wrapper sends a file with sendfile, and holds no thread",
    "--disable-sendfile": "omit it; wsgi.file_wrapper sends a file with sendfile where the kernel can",
    "--cache* --check-cache --load-file-in-cache* --add-cache-item --queue --queue-*": _CACHE,
    "-Q --spooler* --mule* --mules": _TASKS,
    "--cron* --unique-cron* --unique-legion-cron --timer --rbtimer --legion-cron": _CRON,
    "--attach-daemon* --attach-control-daemon --smart-attach-daemon* --daemons-* --legion-*attach*": _DAEMONS,
    "--emperor* --early-emperor --vassal* --vassals-* --imperial-* --heartbeat": _EMPEROR,
    "--legion* --rpc-max --symcall*": _EMPEROR,
    "--hook-* --call-* --exec-* --after-request-* --worker-exec* --worker-mount --for-*": _HOOKS,
    "--mount-* --umount-* --check-mount* --mountpoint-check --namespace* --ns* --setns* --unshare*": _NAMESPACES,
    "--chroot --jailed": _NAMESPACES,
    "--pivot* --refork* --re-fork* --drop-after-* --privileged-* --unprivileged-* --no-orphans": _NAMESPACES,
    "--binsh --blacklist --whitelist --end-* --endfor --endif --for --if-* --if* --set-* -S --set": _CONFIG,
    "--declare-option* --inherit --include --inject-* --fallback-config --print* --iprint --exit": _CONFIG,
    "--dump-options --show-config": "--print-config",
    "--ini --config --yaml --yml -y -x --xml --xmlconfig": "--config FILE, in TOML",
    "--config-py": "--config FILE, in TOML",
    "--strict": "omit it; an unknown setting is always refused",
    "--plugin* --plugins* --need-plugin* --autoload --dlopen --build-plugin --list-* --allowed-modifiers": _PLUGINS,
    "--master-fifo --master-as-root": "use signals, and kirsch top, which watches",
    "--thunder-lock --lock-engine --locks --flock* --ftok --persistent-ipcsem --no-defer-accept": _STANDARD,
    "--tcp-* --freebind --socket-sndbuf --socket-rcvbuf --close-on-exec* --shutdown-sockets": _STANDARD,
    "--ignore-sigpipe --ignore-write-errors --disable-write-exception --write-errors-*": _STANDARD,
    "--skip-atexit* --use-abort --exit-on-reload --forkbomb-delay --backtrace-depth --check-interval": _STANDARD,
    "--vhost* --no-server": "--mount HOST=module:app",
    "--wait-*": "use ExecStartPre= or After= in a systemd unit",
    "--notify-socket": _STANDARD,
    "-r --reaper -A --sharedarea --udp --multicast* --clock* --cflags --dot-h --pcre-jit": _NOTHING,
    "--command-mode -c --cgi-mode --remap-modifier --binary-* --body-read-warning": _NOTHING,
    "--file-write --fd-safe --safe-fd --skip-zero --no-fd-passing --puwsgi* --resolve --get --st -J --test": _NOTHING,
    "--honour-stdin --as-* --mode --propagate-touch --http-modifier*": _NOTHING,
    "--version": "=",
}
