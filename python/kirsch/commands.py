"""The subcommands of ``kirsch``."""

COMMANDS = {
    "check": "Show the settings and where each is from, import the application, and point out likely mistakes.",
    "top": "Watch a running server: rates, latencies, workers, slow requests.",
    "bench": "Measure an HTTP server: rates, latencies, errors; also load tests written in Python.",
    "survey": "Measure HTTP servers side by side, each in an environment of its own, with intervals and ranks.",
    "profile": "Show where the time of a request goes: in the server by stages, in the application by calls.",
    "completion": "Print a script that completes commands, flags and values in bash, zsh or fish.",
    "man": "Print the manual page.",
    "help": "Print help: kirsch help, kirsch help COMMAND, kirsch help all.",
}
"""Each is a module of this name with ``main(argv) -> int``, imported when it is asked for; help is ``kirsch.cli``'s.

Only a first argument that is one of these words is one: ``kirsch check:app`` and ``kirsch -w 2 check`` serve.
"""
