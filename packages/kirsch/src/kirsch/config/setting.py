"""The declaration of one setting: how it is named, read, checked and shown. ``schema.py`` declares them all."""

from __future__ import annotations

from kirsch.config.kinds import explain_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    from kirsch.config.kinds import Kind

    T = TypeVar("T")

COMMAND = "command"
"""A setting that only the command ``kirsch`` reads: the supervisor, or what runs before there is a server."""

PROGRAM = "program"
"""A setting that is also a keyword argument of ``kirsch.Server``, and is read in Python."""

ENGINE = "engine"
"""A setting that is also a keyword argument of ``kirsch.Server``, and is given to the native server."""

PORT_VARIABLE = "PORT"
"""The variable with which a platform such as Heroku says where to listen; used where nothing else names an address."""

GUNICORN_VARIABLE = "GUNICORN_CMD_ARGS"
"""The variable with gunicorn's flags. An origin is this name, a space and the flag."""


class UsageError(Exception):
    """The command line, the environment or the settings file is wrong. Exit status 2.

    One line for each mistake. ``settings`` is a :class:`kirsch.config.schema.Settings` of those that were understood,
    with defaults for the rest, or None if the mistakes do not leave that much; it is for finding more mistakes, and not
    for serving.
    """

    settings: Any = None


class Setting:
    """A descriptor: on the class itself, on an instance the value. ``default`` is text, parsed like any other.

    ``least`` and ``most`` bound a number. ``scope`` is COMMAND, PROGRAM or ENGINE. A reload cannot change a setting
    that is ``fixed``. A setting that is ``supervised`` has no meaning without a supervisor (``--workers 0``), and one
    that ``needs`` another has none unless the other is set. One that is ``command_line_only`` cannot be in a settings
    file. ``variables`` are read after ``KIRSCH_<NAME>``. ``summary`` is its line in the short help, if it is there.
    """

    def __init__(
        self,
        section: str,
        flags: str,
        kind: Kind[Any],
        default: str,
        prose: str,
        *,
        metavar: str = "",
        least: int = 0,
        most: int | None = None,
        scope: str = COMMAND,
        fixed: bool = False,
        supervised: bool = False,
        needs: str = "",
        command_line_only: bool = False,
        variables: tuple[str, ...] = (),
        summary: str = "",
    ) -> None:
        self.name = ""
        self.section = section
        self.flags = tuple(flags.split())
        self.kind = kind
        self.default = default
        self.prose = prose
        self.metavar = metavar or kind.metavar
        self.least = least
        self.most = most
        self.scope = scope
        self.fixed = fixed
        self.supervised = supervised
        self.needs = needs
        self.command_line_only = command_line_only
        self.summary = summary
        self._more_variables = variables

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._values[self.name]

    def __set__(self, instance: Any, value: object) -> NoReturn:
        raise AttributeError(f"settings are read once; {self.name} cannot be set")

    @property
    def key(self) -> str:
        """Its name in a settings file."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"KIRSCH_{self.name.upper()}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that may hold it; the first that is set counts."""
        return (self.variable, *self._more_variables)

    @property
    def negations(self) -> tuple[str, ...]:
        """The flags that turn a switch off, which its variable may have turned on."""
        return tuple(flag.replace("--", "--no-", 1) for flag in self.flags if self.is_switch and flag[:2] == "--")

    @property
    def is_switch(self) -> bool:
        """Return whether the flag stands alone, without a value."""
        return not self.metavar

    @property
    def is_repeatable(self) -> bool:
        return bool(self.kind.separator)

    @property
    def in_programs(self) -> bool:
        """Return whether it is a keyword argument of ``kirsch.Server``."""
        return self.scope != COMMAND

    @property
    def bounds(self) -> str:
        """The numbers that it may be, in words; empty if any will do."""
        if self.most is not None:
            return f"{self.least} to {self.most}"
        return f"at least {self.least}" if self.least else ""

    @property
    def default_and_bounds(self) -> str:
        """The default as help shows it; empty for a switch, and if the default is empty."""
        if self.is_switch or not self.default:
            return ""
        return f"{self.default}, {self.bounds}" if self.bounds else self.default

    @property
    def default_value(self) -> Any:
        return self.kind.parse(self.default)

    def value(self, text: str, origin: str) -> Any:
        """Return the value of ``text``. Raises UsageError, which names the origin."""
        try:
            value = self.kind.parse(text)
            # Settings with a few words for numbers have no bounds.
            if isinstance(value, (int, float)):
                if value < self.least:
                    raise ValueError(f"is too little; {self.least} is the least")
                if self.most is not None and value > self.most:
                    raise ValueError(f"is too much; {self.most} is the most")
        except ValueError as error:
            raise UsageError(f"{self.label(origin)}: {explain_error(text, error)}") from None
        return value

    def program_value(self, value: Any) -> Any:
        """Return the value of what a program has given. Raises TypeError and ValueError, which name the setting."""
        value = self.kind.from_program(self.name, value)
        if isinstance(value, (int, float)):
            if not value >= 0:
                raise ValueError(f"{self.name} must not be negative, and is {value!r}")
            if value < self.least:
                raise ValueError(f"{self.name} must be at least {self.least}, and is {value!r}")
            if self.most is not None and value > self.most:
                raise ValueError(f"{self.name} must be at most {self.most}, and is {value!r}")
        return value

    def label(self, origin: str) -> str:
        """Return where the user finds a wrong value: the flag, the variable, or the line of the file with the key."""
        if origin == "default":
            return self.flags[-1]
        is_flag = origin.startswith(("-", f"{GUNICORN_VARIABLE} "))
        if is_flag or origin in self.variables or origin == PORT_VARIABLE:
            return origin
        return f"{origin}: {self.key}"


def setting(section: str, flags: str, kind: Kind[T], default: str, prose: str, **more: Any) -> T:
    """Return a :class:`Setting`, typed as its value, so that the kind alone says what type an attribute has."""
    return Setting(section, flags, kind, default, prose, **more)  # type: ignore[return-value]
