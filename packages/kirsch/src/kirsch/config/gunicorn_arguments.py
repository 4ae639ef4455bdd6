"""``GUNICORN_CMD_ARGS``: the flags that users of gunicorn set in the environment of a container. A flag with the same
meaning in Kirsch is used. An option of gunicorn that Kirsch does not need is ignored with a warning; any other option
is a mistake, because serving without its effect would be a surprise.
"""

from __future__ import annotations

from kirsch.config import compat
from kirsch.config.arguments import Arguments
from kirsch.config.schema import BY_NAME
from kirsch.config.setting import GUNICORN_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class GunicornArguments:
    """The settings in the text of the variable. ``given`` maps names of settings to (text, origin); ``warnings`` and
    ``mistakes`` are lists of lines."""

    def __init__(self, text: str) -> None:
        import shlex

        self.given: dict[str, tuple[str, str]] = {}
        self.warnings: list[str] = []
        self.mistakes: list[str] = []
        try:
            arguments = Arguments(shlex.split(text))
        except ValueError as error:
            self.mistakes.append(f"{GUNICORN_VARIABLE}: {text!r} cannot be split into words: {error}")
            return
        self.given = {
            name: (value, f"{GUNICORN_VARIABLE} {flag}")
            for name, (value, flag) in arguments.given.items()
            if not BY_NAME[name].command_line_only
        }
        found = [*arguments.mistakes, *_refused(arguments), *self._unknown(arguments)]
        self.mistakes += [f"{GUNICORN_VARIABLE}: {mistake}" for mistake in found]
        if self.given:
            flags = ", ".join(dict.fromkeys(arguments.given[name][1] for name in self.given))
            self.warnings.append(
                f"{GUNICORN_VARIABLE} in the environment is read: {flags}; the command line, KIRSCH_ variables and the "
                "settings file take precedence"
            )

    def _unknown(self, arguments: Arguments) -> Iterator[str]:
        """Yield a mistake for each option that Kirsch does not have, except those that it does not need."""
        for flag, _ in arguments.unknown:
            text = compat.equivalent("gunicorn", flag)
            if text.startswith("omit it"):
                reason = text.removeprefix("omit it; ")
                self.warnings.append(f"{GUNICORN_VARIABLE}: {flag} is ignored: {reason}")
            elif text:
                yield f"{flag} is gunicorn's; {compat.imperative(text)}".replace("{systemd}", "use a systemd unit")
            else:
                yield f"there is no flag {flag}; kirsch --help-all lists those there are"


def _refused(arguments: Arguments) -> Iterator[str]:
    """Yield a mistake for each word that is valid on a command line but not in this variable."""
    if arguments.request:
        yield f"--{arguments.request} belongs on the command line"
    for name, (value, flag) in arguments.given.items():
        if name == "config":
            yield f"{flag} {value} is a settings file of gunicorn; write kirsch.toml, and name it with KIRSCH_CONFIG"
        elif BY_NAME[name].command_line_only:
            yield f"{flag} belongs on the command line"
    for word in arguments.certain_targets:
        yield f"{word!r} is not a flag; name the application on the command line, or in KIRSCH_APP"
