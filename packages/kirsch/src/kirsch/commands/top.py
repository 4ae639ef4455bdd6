"""``kirsch top``: a live view of a running server in the terminal; with ``--once`` a page of plain text.

The data comes from ``--metrics-bind`` (``http://HOST:PORT``, ``HOST:PORT`` or ``unix:PATH``). On the same machine it
can also come directly from the scoreboard of a supervisor: an unnamed file among its descriptors. A user who may send
signals to the supervisor may also read it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import sys
import time

from kirsch import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, NoReturn

    from kirsch.monitor.scoreboard import Scoreboard

    StatusReport = dict[str, Any]
    # The name of a style and a line of text.
    Line = tuple[str, str]

_SECONDS_MAX = 3600.0
_ANSWER_SECONDS = 5.0
_SHOWING_SECONDS = 1.2
# The width in columns if the output is no terminal. A terminal reports its own width.
_PLAIN_WIDTH = 120
_WIDTH_MIN = 20
_STACKS_WHOLE = 200
_WIDTH_WITH_REASON = 100

_STYLES = {"": "", "title": "\x1b[7m", "head": "\x1b[1m", "bad": "\x1b[31m", "warn": "\x1b[33m", "faint": "\x1b[2m"}
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"

_FIND = "start the server with --metrics-bind 127.0.0.1:9100 and name that address, or name its process"


class TopError(Exception):
    """Raised if there is no data. ``problem`` is the reason, and ``remedy`` the advice, which is only shown by
    ``top``."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem


class Parser(argparse.ArgumentParser):
    """A parser for the flags of a command. ``prog`` is the command, such as ``kirsch top``."""

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, like the server's command line, without usage, and exit."""
        message = message.replace("unrecognized arguments: -", "there is no flag -")
        reports.write_stderr(f"{self.prog}: {message}; {self.prog} --help tells more")
        self.exit(2)


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 if no server responds, or 2 for a wrong command line."""
    parser = Parser(
        prog="kirsch top",
        description="Watch a running server: requests, latencies, workers, and slow requests while they run.",
        epilog="Keys: q quits. Without ADDRESS or a pid it takes the only supervisor that this user may read.",
    )
    parser.add_argument(
        "address",
        nargs="?",
        metavar="ADDRESS",
        help="the server's --metrics-bind: 127.0.0.1:9100, http://127.0.0.1:9100 or unix:PATH; or the supervisor's pid",
    )
    parser.add_argument("-p", "--pid-file", metavar="FILE", help="the server's --pid-file, on this machine")
    parser.add_argument(
        "--once", action="store_true", help="print one page of plain text; the default without a terminal"
    )
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="SECONDS", help="time between updates (default: 2)"
    )
    try:
        chosen = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        if chosen.address and chosen.pid_file:
            raise TopError("ADDRESS or --pid-file, not both")
        look = _source(chosen.address, chosen.pid_file)
        if chosen.once or not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
            report = look()
            if report["running"] is None:
                time.sleep(_SHOWING_SECONDS)  # the first read makes the workers publish their requests, once a second
                report = look()
            _print(report)
        else:
            _Screen(look, chosen.interval).run()
    except TopError as trouble:
        reports.write_stderr(f"kirsch top: {trouble}")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be from 0.1 to {_SECONDS_MAX:g} seconds")
    return seconds


# Sources of reports


def _source(address: str | None, pid_file: str | None) -> Callable[[], StatusReport]:
    """Return a function that fetches the next report. Both raise TopError."""
    if pid_file:
        return _of_process(pid_in(pid_file))
    if not address:
        return _of_process(only_supervisor())
    return _of_process(int(address)) if address.isascii() and address.isdigit() else _of_address(address)


def pid_in(path: str) -> int:
    """Return the pid in a ``--pid-file``. Raises TopError."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(100).strip()
    except OSError as error:
        raise TopError(f"cannot read {path}: {error.strerror}") from None
    if not (text.isascii() and text.isdigit()):
        raise TopError(f"{path} holds no pid")
    return int(text)


def _of_address(address: str) -> Callable[[], StatusReport]:
    """Return a function that fetches reports over HTTP."""
    import http.client
    import json
    import socket

    path = ""
    if address.startswith("unix:"):
        unix, host, port = address[5:], "localhost", 80
    else:
        from urllib.parse import urlsplit

        unix = ""
        try:
            parts = urlsplit(address if "://" in address else f"http://{address}")
            host, port, path = parts.hostname or "127.0.0.1", parts.port or 80, parts.path.rstrip("/")
        except ValueError as error:
            raise TopError(f"{address} is no address: {error}") from None
        if parts.scheme != "http":
            raise TopError(f"{address} is neither http://HOST:PORT nor unix:PATH")
        path = path.removesuffix("/status.json").removesuffix("/metrics")

    def ask() -> StatusReport:
        connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
        try:
            if unix:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_ANSWER_SECONDS)
                connection.sock.connect(unix)
            connection.request("GET", f"{path}/status.json")
            answer = connection.getresponse()
            text = answer.read()
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise TopError(f"no server answers at {address} ({why}); {_FIND}") from None
        except http.client.HTTPException:
            raise TopError(f"the server at {address} does not speak HTTP; is this the --metrics-bind?") from None
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            report = json.loads(text)
            if answer.status == 200 and isinstance(report, dict) and "recent" in report and "workers" in report:
                return report
        raise TopError(f"the server at {address} ({answer.status}) has no such report; is this the --metrics-bind?")

    return ask


def _of_process(pid: int) -> Callable[[], StatusReport]:
    """Return a function that reads reports from the scoreboard of the supervisor ``pid`` on this machine."""
    from kirsch.monitor.status_page import SAMPLE_SECONDS, Status

    board = board_of(pid)
    status = Status(board)

    def look() -> StatusReport:
        time.sleep(0 if status.has_history else SAMPLE_SECONDS)  # a rate needs two samples
        if not os.path.exists(f"/proc/{pid}"):
            raise TopError(f"process {pid} has exited")
        status.sample()
        return status.now()

    return look


def board_of(pid: int) -> Scoreboard:
    """Open the scoreboard of a supervisor on this machine. Raises TopError."""
    from kirsch.monitor.scoreboard import LayoutError

    if not os.path.isdir("/proc/self/fd"):
        raise TopError("this system does not allow reading the memory of processes", _FIND)
    try:
        paths = list(_scoreboards(pid))
    except FileNotFoundError:
        raise TopError(f"there is no process {pid}") from None
    except PermissionError:
        raise TopError(f"this user may not read process {pid}", "become its user, or name its --metrics-bind") from None
    if not paths:
        raise TopError(f"process {pid} is no supervisor of Kirsch", _FIND)
    try:
        return _look_at(paths[0])
    except LayoutError:
        raise TopError(f"process {pid} runs another version of Kirsch", "use the kirsch top of that version") from None
    except OSError as error:
        raise TopError(f"cannot read process {pid}: {error.strerror}") from None


def _scoreboards(pid: int) -> Iterator[str]:
    """Yield the paths in /proc of a process's descriptors that are scoreboards. Raises OSError."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path).startswith("/memfd:kirsch-scoreboard"):
                yield path


def _look_at(path: str) -> Scoreboard:
    """Open the scoreboard at ``path``. Raises OSError or LayoutError."""
    from kirsch.monitor.scoreboard import Scoreboard

    # Writable, because a mark asks the workers to publish their running requests.
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Scoreboard.attach(fd)
    finally:
        os.close(fd)  # the memory stays mapped


def only_supervisor() -> int:
    """Return the pid of the only supervisor whose scoreboard this user may read. Raises TopError."""
    from kirsch.monitor.scoreboard import LayoutError

    found: dict[int, str] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, LayoutError):
            for path in _scoreboards(int(name)):
                board = _look_at(path)
                if board.pid == int(name):  # its children have the same descriptor
                    found[board.pid] = board.application
    if not found:
        raise TopError("this user can read no supervisor of Kirsch here", _FIND)
    if len(found) > 1:
        listed = ", ".join(f"{pid} ({_clean(application)})" for pid, application in sorted(found.items()))
        raise TopError(f"which one? Name the pid: {listed}")
    return next(iter(found))


# Rendering


def render(report: StatusReport, width: int, *, unicode: bool = True, stack_max: int = 4) -> list[Line]:
    """Render a report as lines of at most ``width`` characters, the most important first. Long stacks keep the inner
    frames."""
    lines = [*_head(report, width, unicode), ("", ""), *_workers(report, width)]
    lines += [*_running(report, stack_max), *_slow(report, stack_max)]
    return [(style, _fit(text, width)) for style, text in lines]


# The separator between mounted applications: "shop:app at /shop (WSGI), api:app at /api (ASGI)".
_BETWEEN = re.compile(r"(?<=\((?:WSGI|ASGI)\)), ")


def _head(report: StatusReport, width: int, unicode: bool) -> Iterator[Line]:
    recent, gauges = report["recent"], report["gauges"]
    applications = _BETWEEN.split(report["application"])
    name = f"{len(applications)} applications" if len(applications) > 1 else applications[0] or "kirsch"
    yield (
        "title",
        _spread(f" {name}", f"kirsch {report['version']}  pid {report['pid']}  up {span(report['uptime'])} ", width),
    )
    for each in applications if len(applications) > 1 else ():
        yield "", f"serving    {each}"
    counts = "  ".join(f"{status} {short(count)}" for status, count in report["responses"].items() if count)
    text = f"requests   {short(recent['requests_per_second'])}/s, {short(report['counters']['requests'])} in all"
    yield "head", f"{text}   {counts}"
    rates = report["history"]["requests_per_second"][-max(width - 22, 10) :]
    if len(rates) > 1:
        yield "", f"           {_sparkline(rates, unicode)} {short(max(rates))}/s"
    most = gauges["threads_most"]
    busy = (
        f"{gauges['running']} of {most} {_bar(gauges['running'] / most, 20, unicode)}"
        if most
        else str(gauges["running"])
    )
    rest = f"queued {short(gauges['queued'])}   connections {short(gauges['connections'])}"
    if gauges.get("http2_connections"):
        rest += f" (HTTP/2 {short(gauges['http2_connections'])}, streams {short(gauges['http2_streams'])})"
    if gauges["suspended"]:
        rest += f"   waiting for slow clients {gauges['suspended']}"
    yield "", f"busy       {busy}   {rest}"
    sent, received = (report["counters"].get(f"websocket_messages_{way}", 0) for way in ("out", "in"))
    if gauges.get("websockets") or sent or received:
        yield "", f"WebSockets {short(gauges['websockets'])}   messages {short(received)} in, {short(sent)} out"
    if tls := report.get("tls"):
        full, resumed = (sum(tls[family].values()) for family in ("full", "resumed"))
        failed = sorted(tls["failed"].items(), key=lambda each: -each[1])
        reasons = ", ".join(f"{reason.replace('_', ' ')} {short(count)}" for reason, count in failed[:3] if count)
        failures = f", {short(sum(tls['failed'].values()))} failed ({reasons})" if reasons else ""
        yield "", f"TLS        {short(full)} full handshakes, {short(resumed)} resumed{failures}"
    yield "faint", f"{'at most':22}{'median':>9}{'p90':>10}{'p99':>10}{'(mean)':>10}"
    names = {"service_time": "service time", "queue_wait": "wait in queue", "interpreter_wait": "wait for the GIL"}
    for key, title in names.items():
        found = recent["latency"][key]
        quantiles = [_at_most(found[each], unicode=unicode) for each in ("p50", "p90", "p99")]
        yield "", f"{title:22}{quantiles[0]:>9}{quantiles[1]:>10}{quantiles[2]:>10}{span(found['mean']):>10}"
    if dropped := report["counters"]["log_lines_dropped"]:
        yield "warn", f"dropped    {short(dropped)} log lines, because a log did not accept them"
    for each in report["quarantined"]:
        yield "bad", f"quarantine {_clean(each['route'])}, answered with 503 for another {span(each['left'])}"
    if report["restarts"]:
        counts = ", ".join(f"{reason} {count}" for reason, count in report["restarts"].items())
        yield "", f"replaced   {counts}"
    if last := report["last_restart"]:
        yield "faint", f"last       {span(max(report['time'] - last['at'], 0.0))} ago: {last['text']}"


_COLUMNS: tuple[tuple[str, int, Callable[[StatusReport], str]], ...] = (
    ("PID", 7, lambda worker: str(worker["pid"] or "-")),
    ("STATE", -9, lambda worker: worker["condition"]),
    ("AGE", 9, lambda worker: span(worker["age"])),
    ("REQUESTS", 9, lambda worker: short(worker["requests"])),
    ("/S", 7, lambda worker: short(worker["requests_per_second"])),
    ("BUSY", 8, lambda worker: f"{worker['running']}/{worker['threads_most'] or '-'}"),
    ("QUEUE", 6, lambda worker: short(worker["queued"])),
    ("CONNS", 6, lambda worker: short(worker["connections"])),
    ("MEMORY", 8, lambda worker: f"{worker['memory'] / 1048576:.0f} MiB" if worker["memory"] else "-"),
    ("BECAUSE", -1, lambda worker: worker["reason"]),
)


def _workers(report: StatusReport, width: int) -> Iterator[Line]:
    columns = _COLUMNS if width >= _WIDTH_WITH_REASON else _COLUMNS[:-1]

    def row(texts: Iterable[str]) -> str:
        pairs = zip(columns, texts, strict=True)
        return " ".join(f"{text:<{-size}}" if size < 0 else f"{text:>{size}}" for (_, size, _), text in pairs).rstrip()

    yield "head", row(name for name, _, _ in columns)
    for worker in report["workers"]:
        style = {"serving": "", "stuck": "bad"}.get(worker["condition"], "warn")
        yield style, row(of(worker) for _, _, of in columns)
    if not report["workers"]:
        yield "faint", "no worker runs; the next connection starts one"


def _running(report: StatusReport, stack_max: int) -> Iterator[Line]:
    if report["running"]:
        yield "", ""
        yield "head", "RUNNING NOW"
    for request in report["running"] or []:
        yield "", f"{span(request['age'])} {request['state']}: {_title(request)}"
        # A frame usually has two lines; the second is the code.
        for line in request["stack"][-stack_max // 2 :]:
            yield "faint", f"  {line}"


def _title(request: StatusReport) -> str:
    protocol = "HTTP/2, " if request.get("protocol") == "HTTP/2" else ""
    where = f"id {request['id']}, pid {request['pid']}, {request['thread']}"
    return f"{request['method']} {request['path']} ({protocol}{where})"


def _slow(report: StatusReport, stack_max: int) -> Iterator[Line]:
    if report["slow"]:
        yield "", ""
        yield "head", "SLOW REQUESTS"
    for request in report["slow"]:
        over = request["condition"] == "over"
        age = f"{span(request['age'])} " if request["age"] else ""
        yield "faint" if over else "warn", f"{age}{request['condition']}: {_title(request)}"
        if not over:
            for line in request["stack"][-stack_max:]:
                yield "faint", f"  {line}"


def _at_most(seconds: float | None, *, unicode: bool) -> str:
    """Format an upper bound of a quantile (``≤250 ms``) with two digits, rounded up so that it remains a bound."""
    if not seconds:
        return "-" if seconds is None else span(seconds)
    digit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    rounded = math.ceil(seconds / digit - 1e-6) * digit
    shown = span(rounded) if rounded < 60 else f"{math.ceil(seconds)} s"
    return f"{'≤' if unicode else '<='}{shown}"


def short(number: float) -> str:
    """Format a number: ``12``, ``1.5``, ``12.3k``, ``4.5M``."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= least:
            return f"{number / (1e3 if unit == 'k' else least):.1f}{unit}"
    return f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"


def span(seconds: float | None) -> str:
    """Format a duration: ``-``, ``850 us``, ``12 ms``, ``1.5 s``, ``3 min``, ``2h05m``, ``3d04h``."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def _sparkline(rates: list[float], unicode: bool) -> str:
    steps = "▁▂▃▄▅▆▇█" if unicode else " .:-=+*#"
    most = max(rates) or 1.0
    return "".join(steps[min(int(rate / most * (len(steps) - 1) + 0.5), len(steps) - 1)] for rate in rates)


def _bar(part: float, size: int, unicode: bool) -> str:
    full = min(round(part * size), size)
    return f"{'█' * full}{'░' * (size - full)}" if unicode else f"[{'#' * full}{'.' * (size - full)}]"


def _spread(left: str, right: str, width: int) -> str:
    """Return a line with both texts at its ends; only the left one if there is too little room."""
    room = width - len(left)
    return left + (right.rjust(room) if len(right) + 1 <= room else " " * max(room, 0))


def _fit(text: str, width: int) -> str:
    return _clean(text)[:width]


def _clean(text: str) -> str:
    """Replace control characters, which could move the cursor, in text from other sources."""
    return "".join(character if character.isprintable() else "?" for character in text)


# Display


def _print(report: StatusReport) -> None:
    width = _size()[0] if _is_terminal(sys.stdout) else _PLAIN_WIDTH
    text = "\n".join(
        text.rstrip() for _, text in render(report, width, unicode=_speaks_unicode(), stack_max=_STACKS_WHOLE)
    )
    try:
        print(text, flush=True)  # noqa: T201 - that is what it is for
    except BrokenPipeError:
        # Otherwise the interpreter would write the rest of the buffer at its exit, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _size() -> tuple[int, int]:
    """Return the columns and lines of the terminal. COLUMNS and LINES are ignored, because they do not follow a
    resize."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


class _Screen:
    """The terminal during :meth:`run`. Its state is always restored."""

    def __init__(self, look: Callable[[], StatusReport], interval: float) -> None:
        self._look = look
        self._interval = interval
        self._report: StatusReport = {}
        self._trouble = ""

    def run(self) -> None:
        import select
        import signal
        import termios
        import tty

        self._report = self._look()  # an error here is printed on the normal screen
        stdin, before = sys.stdin.fileno(), termios.tcgetattr(sys.stdin)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        handlers = {
            signal.SIGWINCH: lambda *_: None,  # no action: the byte in the pipe wakes the loop
            signal.SIGTERM: _leave,
            signal.SIGHUP: _leave,
        }
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        previous_fd = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            tty.setcbreak(stdin)
            keys = termios.tcgetattr(stdin)
            keys[6][termios.VSUSP] = b"\0"  # disable Ctrl-Z, which would leave the alternate screen visible
            termios.tcsetattr(stdin, termios.TCSANOW, keys)
            self._write(_ENTER)
            due = time.monotonic() + self._interval
            while True:
                self._draw()
                ready, _, _ = select.select([stdin, woken], [], [], max(due - time.monotonic(), 0.0))
                if woken in ready:
                    os.read(woken, 4096)
                if stdin in ready:
                    keys_pressed = os.read(stdin, 4096)
                    if not keys_pressed or set(keys_pressed) & set(b"qQ"):
                        return
                if time.monotonic() >= due:
                    self._refresh()
                    due = time.monotonic() + self._interval
        except OSError:
            pass  # the terminal is closed
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            with contextlib.suppress(OSError, termios.error):
                self._write(_LEAVE)
                termios.tcsetattr(stdin, termios.TCSADRAIN, before)
            os.close(woken)
            os.close(wake)

    def _refresh(self) -> None:
        try:
            self._report = self._look()
            self._trouble = ""
        except TopError as trouble:
            self._trouble = f" {trouble} "

    def _draw(self) -> None:
        columns, lines_max = _size()
        width, height = max(columns, _WIDTH_MIN), max(lines_max, 2)
        lines = render(self._report, width, unicode=_speaks_unicode())
        if self._trouble:
            lines.insert(1, ("bad", _fit(self._trouble, width)))
        shown = [f"\x1b[K{_STYLES[style]}{text}\x1b[0m" for style, text in lines[:height]]
        # Overwrite the previous screen, to avoid flicker. No line end after the last line, which would scroll.
        self._write("\x1b[H" + "\n".join(shown) + "\x1b[J")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _leave(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
