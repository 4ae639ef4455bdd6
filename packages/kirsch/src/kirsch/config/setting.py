"""The declaration of one setting: its names, and how it is read, checked and shown. ``schema.py`` declares all
settings."""

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
    """Raised if the command line, the environment or the settings file is wrong. Exit status 2. The text has one line
    for each mistake. ``settings`` is a :class:`kirsch.config.schema.Settings` of the valid settings, with defaults for
    the rest, or None if that is not possible. It is only for finding further mistakes.
    """

    settings: Any = None


class Setting:
    """A descriptor: an attribute of the class returns the setting itself, of an instance its value. ``default`` is
    text, parsed like any other. ``least`` and ``most`` are the bounds of a number. ``scope`` is COMMAND, PROGRAM or
    ENGINE. ``fixed``: a reload cannot change the setting. ``supervised``: it has no effect without a supervisor
    (``--workers 0``). ``needs``: it has no effect unless that other setting is set. ``command_line_only``: it cannot be
    in a settings file. ``variables`` are read after ``KIRSCH_<NAME>``. ``summary`` is its line in the short help; empty
    to omit it there.
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
        """The name of the setting in a settings file."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"KIRSCH_{self.name.upper()}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables of the setting; the first one that is set is used."""
        return (self.variable, *self._more_variables)

    @property
    def negations(self) -> tuple[str, ...]:
        """The flags that turn off a switch, for example after a variable has turned it on."""
        return tuple(flag.replace("--", "--no-", 1) for flag in self.flags if self.is_switch and flag[:2] == "--")

    @property
    def is_switch(self) -> bool:
        """Return whether the flag takes no value."""
        return not self.metavar

    @property
    def is_repeatable(self) -> bool:
        return bool(self.kind.separator)

    @property
    def in_programs(self) -> bool:
        """Return whether the setting is a keyword argument of ``kirsch.Server``."""
        return self.scope != COMMAND

    @property
    def bounds(self) -> str:
        """The allowed range of numbers, in words; empty if there is no limit."""
        if self.most is not None:
            return f"{self.least} to {self.most}"
        return f"at least {self.least}" if self.least else ""

    @property
    def default_and_bounds(self) -> str:
        """The default and the bounds as help shows them; empty for a switch or an empty default."""
        if self.is_switch or not self.default:
            return ""
        return f"{self.default}, {self.bounds}" if self.bounds else self.default

    @property
    def default_value(self) -> Any:
        return self.kind.parse(self.default)

    def value(self, text: str, origin: str) -> Any:
        """Parse ``text`` and return the value. Raises UsageError, which names the origin."""
        try:
            value = self.kind.parse(text)
            # A word in place of a number, such as "auto", has no bounds.
            if isinstance(value, (int, float)):
                if value < self.least:
                    raise ValueError(f"is too little; {self.least} is the least")
                if self.most is not None and value > self.most:
                    raise ValueError(f"is too much; {self.most} is the most")
        except ValueError as error:
            raise UsageError(f"{self.label(origin)}: {explain_error(text, error)}") from None
        return value

    def program_value(self, value: Any) -> Any:
        """Convert a program's value. Raises TypeError and ValueError, which name the setting."""
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
        """Return the place of the setting for a message: the flag, the variable, or the line and key in the file."""
        if origin == "default":
            return self.flags[-1]
        is_flag = origin.startswith(("-", f"{GUNICORN_VARIABLE} "))
        if is_flag or origin in self.variables or origin == PORT_VARIABLE:
            return origin
        return f"{origin}: {self.key}"


def setting(section: str, flags: str, kind: Kind[T], default: str, prose: str, **more: Any) -> T:
    """Return a :class:`Setting`, typed as its value, so that ``kind`` determines the type of the attribute."""
    return Setting(section, flags, kind, default, prose, **more)  # type: ignore[return-value]
