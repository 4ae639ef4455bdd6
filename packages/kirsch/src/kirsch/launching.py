""":func:`kirsch.run`: start a server from a program, with the keywords that ``uvicorn.run`` has."""

from __future__ import annotations

import os
import signal
import sys

from kirsch import bootstrap, reports
from kirsch.alone import serve_alone
from kirsch.config import sources
from kirsch.config.schema import BY_NAME, SETTINGS
from kirsch.config.setting import UsageError
from kirsch.process.signal_handlers import set_handlers
from kirsch.server import Server
from kirsch.serving import serve_until_signal, take_listeners

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from kirsch.config.schema import Settings

# The signals that a supervisor handles. The parent process passes them on to it.
_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH")
)


def run(app: Callable[..., Any] | str, *, host: str | None = None, port: int | None = None, **options: Any) -> None:
    """Serve ``app`` until a signal ends it, with the keywords of ``uvicorn.run`` or those of Kirsch's settings.

    ``app`` is an application, or its name: ``module:app``. With ``workers`` above 1, ``reload``, or another setting
    that needs a supervisor, ``app`` must be a name: the server is then a child process, to which this one passes its
    signals. Otherwise this process serves, and the function returns afterwards. Settings without a keyword are read
    from the environment and the settings file, as the command ``kirsch`` reads them. Without ``host`` and ``port`` the
    server listens like the command: on ``$PORT``, or 127.0.0.1:8000.

    If :func:`kirsch.listen` has been called before, ``app`` is served on its addresses, as in picows: ``options``
    are then those of :class:`kirsch.Server`, and ``threads`` is 1 unless given.

    Raises TypeError for an unknown keyword, ValueError for a wrong value, and SystemExit if the server cannot start; a
    line on standard error gives the reason.
    """
    listeners = take_listeners() if host is None and port is None and not isinstance(app, str) else []
    if listeners and not isinstance(app, str):
        options.setdefault("threads", 1)
        server = Server(app, **options)
        server.adopt(listeners)
        serve_until_signal(server)
        return
    arguments = [*_address_words(host, port), *(word for name in options for word in _words(name, options))]
    target = [app] if isinstance(app, str) else []
    try:
        chosen = sources.read([*arguments, *target])
        if is_supervised := _needs_supervisor(chosen):
            if not target:
                raise UsageError(f'{is_supervised} needs the name of the application: kirsch.run("module:app", ...)')
            status = _run_command([*arguments, *_script_directory(), *target])
        else:
            chosen = sources.read([*arguments, "--workers=0", *target])
            if target:
                bootstrap.change_directory(chosen)
            bootstrap.raise_descriptor_limit()
            status = serve_alone(chosen, None if isinstance(app, str) else app, owns_process=False)
    except UsageError as error:
        raise ValueError(str(error)) from None
    except bootstrap.StartupError as error:
        reports.write_failure(str(error), "" if error.cause is None else reports.traceback_text(error.cause))
        raise SystemExit(error.status) from None
    if status:
        raise SystemExit(status)


def _address_words(host: str | None, port: int | None) -> list[str]:
    return [f"--{name}={value}" for name, value in (("host", host), ("port", port)) if value is not None]


def _needs_supervisor(chosen: Settings) -> str:
    """Return the name of a setting that needs a supervisor, or an empty string if one process can serve."""
    if chosen.workers > 1:
        return "workers"
    return next(
        (each.name for each in SETTINGS if each.supervised and getattr(chosen, each.name) != each.default_value), ""
    )


# ------------------------------------------------------------------------------------------------ keywords to flags


def _words(name: str, options: Mapping[str, Any]) -> list[str]:
    """Return the keyword ``name`` and its value as words of a command line. Raises TypeError if there is no such
    keyword."""
    value = options[name]
    if value is None:
        return []
    special = _SPECIAL.get(name)
    if special is not None:
        return special(value, options)
    if name in BY_NAME:
        return list(_setting_words(name, value))
    return _converted_words(name, value)


def _setting_words(name: str, value: Any) -> Iterator[str]:
    """Yield the words of a command line for one of Kirsch's settings."""
    each = BY_NAME[name]
    flag = each.flags[-1]
    if each.is_switch:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be bool, and is {value!r}")
        yield flag if value else each.negations[-1]
    elif isinstance(value, bool):
        yield f"{flag}={'on' if value else 'off'}"
    elif hasattr(value, "items"):
        yield from (f"{flag}={key}={text}" for key, text in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (f"{flag}={text}" for text in value)
    else:
        yield f"{flag}={os.fspath(value) if hasattr(value, '__fspath__') else value}"


def _converted_words(name: str, value: Any) -> list[str]:
    """Return the words of a command line for one of uvicorn's keywords, by the conversion table of uvicorn's flags."""
    from kirsch.config.compat import conversion, imperative, rules
    from kirsch.config.compat.uvicorn import OPTIONS

    flag = f"--{name.replace('_', '-')}"
    rule = rules.of("uvicorn").find(flag)
    if rule is None:
        from kirsch.suggest import nearest

        theirs = {word[2:].replace("-", "_") for words in OPTIONS for word in words.split()}
        near = nearest(name, sorted({*BY_NAME, *theirs, *_SPECIAL, "host", "port"} - {"version"}))
        raise TypeError(f"there is no keyword {name!r}{f'; did you mean {near!r}?' if near else ''}")
    if value is False or rule.kind == "omit":
        return []
    if rule.kind == "hand":
        raise TypeError(f"{name} is uvicorn's; {imperative(rule.say)}")
    converted = conversion.Conversion("uvicorn")
    for each in value if isinstance(value, (list, tuple)) else [value]:
        converted.option(flag, str(each) if rule.takes else None)
    return [each.flag if each.value is None else f"{each.flag}={each.value}" for each in converted.settings]


def _reload_directories(value: Iterable[str] | str, options: Mapping[str, Any]) -> list[str]:
    paths = [value] if isinstance(value, str) else [os.fspath(path) for path in value]
    if pattern := next((path for path in paths if "*" in path), ""):
        raise ValueError(f"reload_includes: {pattern!r} is a pattern; name files and directories")
    return [f"--reload-extra-file={path}" for path in paths] if options.get("reload") else []


def _log_level(value: str | int, _options: Mapping[str, Any]) -> list[str]:
    if isinstance(value, str):
        return [f"--log-level={'debug' if value == 'trace' else value}"]
    levels = reports.LEVELS
    return [f"--log-level={min(levels, key=lambda name: abs(levels[name] - value))}"]


def _log_config(value: Any, _options: Mapping[str, Any]) -> list[str]:
    if isinstance(value, dict):
        import json

        value = json.dumps(value)
    elif not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"log_config must be a dict or the path of a file, and is {value!r}")
    return [f"--log-config={os.fspath(value)}"]


def _proxy_headers(value: bool, options: Mapping[str, Any]) -> list[str]:
    # uvicorn trusts the loopback addresses by default.
    if value and not (options.get("forwarded_allow_ips") or options.get("trusted_proxies")):
        return ["--trusted-proxies=127.0.0.1,::1"]
    return []


def _refusal(sentence: str) -> Callable[[Any, Mapping[str, Any]], list[str]]:
    def refuse(value: Any, _options: Mapping[str, Any]) -> list[str]:
        if value:
            raise TypeError(sentence)
        return []

    return refuse


_SPECIAL: dict[str, Callable[[Any, Mapping[str, Any]], list[str]]] = {
    "access_log": lambda value, _: ["--access-logfile=-"] if value else [],
    "app_dir": lambda value, _: [f"--pythonpath={os.fspath(value)}"] if value else [],
    "env_file": _refusal("env_file is uvicorn's; write env={'NAME': 'value'}, or a table [env] in kirsch.toml"),
    # uvicorn's `http` names a parser (h11, httptools); Kirsch's is an HTTP version.
    "http": lambda value, _: [f"--http={value}"] if str(value) in ("auto", "1", "2") else [],
    "headers": _refusal("headers is uvicorn's; use a middleware that adds the fields, or the proxy in front"),
    "interface": lambda value, _: [f"--interface={'asgi' if value == 'asgi3' else value}"],
    "log_config": _log_config,
    "log_level": _log_level,
    "proxy_headers": _proxy_headers,
    "reload_dirs": _reload_directories,
    "reload_excludes": lambda _value, _: [],
    "reload_includes": _reload_directories,
    "report": _refusal("report is for kirsch.Server and kirsch.serve; kirsch.run writes the error log"),
    "root_path": _refusal("root_path is uvicorn's; write mount={'/path': 'module:app'}, or FastAPI(root_path='/path')"),
    "server_header": lambda value, _: (
        [] if value is True else [f"--server-header={value if isinstance(value, str) else ''}"]
    ),
    "ssl_context_factory": _refusal("ssl_context_factory is uvicorn's; write ssl_certfile and ssl_keyfile"),
    # The only constant of ssl that names no single version is PROTOCOL_TLS_SERVER, which is 17.
    "ssl_version": lambda value, _: [] if int(value) == 17 else _refusal("ssl_version: write tls_min='1.3'")(value, {}),
    # A single process has no supervisor that could check it.
    "timeout_worker_healthcheck": lambda value, options: (
        [f"--deadlock-timeout={value}"] if (options.get("workers") or 1) > 1 else []
    ),
    "ws_per_message_deflate": lambda value, _: [f"--ws-compression={'on' if value else 'off'}"],
}
"""Keywords whose values are not those of the flags of the same names."""


# ---------------------------------------------------------------------------------------------------- with a supervisor


def _script_directory() -> list[str]:
    """Return the flag that adds the directory of this program to the import path of the server."""
    first = sys.path[0] if sys.path else ""
    return [f"--pythonpath={first}"] if first and os.path.isdir(first) and "," not in first else []


def _run_command(arguments: list[str]) -> int:
    """Run ``kirsch`` with ``arguments`` as a child process, pass signals on to it, and return its exit status."""
    import subprocess

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing uses it too
    child = subprocess.Popen([sys.executable, *flags, "-m", "kirsch", *arguments])  # noqa: S603 - our own command
    try:
        status = _wait(child) if hasattr(signal, "sigtimedwait") else _wait_with_handlers(child)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    return 128 - status if status < 0 else status


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Pass the signals of this thread on to ``child`` until it exits. Return its status in the form of Popen."""
    numbers = (*_PASSED_ON, signal.SIGCHLD)
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        while (status := child.poll()) is None:
            # With a time limit, because another thread may receive SIGCHLD if this is not the main thread.
            received = signal.sigtimedwait(numbers, 0.5)
            # A terminal sends Ctrl-C to all processes of its foreground group, so the child has received it already.
            # The kernel sent such a signal, so its `si_code` is above 0.
            if received is not None and received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                child.send_signal(received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    return status


def _wait_with_handlers(child: subprocess.Popen[bytes]) -> int:
    """Do the same as :func:`_wait` if the system does not tell who sent a signal: on macOS, and with PyPy."""
    previous = set_handlers(dict.fromkeys(_PASSED_ON, lambda each, _: child.send_signal(each)))
    try:
        return child.wait()
    finally:
        set_handlers(previous)
