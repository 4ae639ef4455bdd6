"""The kinds of settings: how values of each kind are written as text, in TOML and in a program. A kind describes a type
for each reader of settings: parser and metavar for the command line, TOML types for the settings file, Python types for
a program, and words or files for shell completion.
"""

from __future__ import annotations

from kirsch.config import values
from kirsch.config.driver_names import NAMES as DRIVERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Generic, TypeVar

    from kirsch.config.mounts import Mount
    from kirsch.net.certificates import CertificateFiles

    T = TypeVar("T")
else:
    T = None

    class Generic:
        """A substitute that can be subscripted: importing ``typing`` would add 5 ms to each start."""

        def __class_getitem__(cls, _parameter):
            return cls


class Kind(Generic[T]):
    """One kind of value.

    ``parse`` parses a text, or raises ValueError with a message that continues after the text. ``metavar`` represents
    the value in help; it is empty for a flag without a value. ``unit`` is the unit of a bare number. ``annotation`` is
    the static type in a program, which may pass one of ``types``, or a text if the annotation contains ``str``.
    ``toml`` are the types in a settings file, and ``wanted`` is their description. ``separator`` separates several
    values in one text; without one, a repeated flag replaces the earlier value. ``table`` is the kind of the values, if
    a settings file may have a table. ``choices`` are the usual words, and ``completes`` is ``"file"`` or
    ``"directory"`` if a shell can complete paths.
    """

    def __init__(
        self,
        parse: Callable[[str], T],
        metavar: str,
        *,
        unit: str = "",
        annotation: str = "str",
        types: tuple[type, ...] = (),
        admits: Callable[[object], bool] | None = None,
        convert: Callable[[Any], T] | None = None,
        toml: tuple[type, ...] = (str,),
        wanted: str = "a string",
        separator: str = "",
        table: Kind[Any] | None = None,
        choices: tuple[str, ...] = (),
        completes: str = "",
        shown: Callable[[str], str] | None = None,
    ) -> None:
        """``admits`` replaces ``types`` if a list of types is not enough; ``convert`` replaces both. ``shown`` converts
        a text for display, for example to hide secrets.
        """
        self.parse = parse
        self.metavar = metavar
        self.unit = unit
        self.annotation = annotation
        self.toml = toml
        self.wanted = wanted
        self.separator = separator
        self.table = table
        self.choices = choices
        self.completes = completes
        self.shown = shown
        self._types = types
        self._admits = admits
        self._convert = convert

    def from_program(self, name: str, value: Any) -> T:
        """Convert a program's value of the setting ``name``; parse it if it is text. Raises TypeError and
        ValueError."""
        if self._convert is not None:
            try:
                return self._convert(value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from None
        if isinstance(value, str) and "str" in self.annotation:
            try:
                return self.parse(value)
            except ValueError as error:
                raise ValueError(f"{name}: {explain_error(value, error)}") from None
        if not self._is_admitted(value):
            wanted = self.annotation.removesuffix(" | str")
            raise TypeError(f"{name} must be {wanted}, and is {value!r}")
        admitted: T = value
        return admitted

    def _is_admitted(self, value: object) -> bool:
        if self._admits is not None:
            return self._admits(value)
        # In Python, True is an int too.
        return isinstance(value, self._types) and isinstance(value, bool) == (bool in self._types)


def explain_error(text: str, error: ValueError) -> str:
    """Return a parser's message about ``text``, preceded by the text unless the message begins with a quotation."""
    message = str(error)
    return message if message.startswith(("'", '"')) else f"{text!r} {message}"


def one_of(*words: str) -> Kind[str]:
    """Return the kind of a setting whose value is one of ``words``."""
    return Kind(lambda text: values.parse_word(text, words), "WORD", choices=words)


def _names_only(text: str) -> str:
    """Return the names of variables without their values, which may be secrets."""
    return ", ".join(f"{name}=..." for name, _ in values.parse_environment(text))


def _table_name(text: str) -> str:
    return "[logging]" if text.startswith("{") else text


COUNT: Kind[int] = Kind(
    values.parse_count, "COUNT", annotation="int", types=(int,), toml=(int,), wanted="a whole number"
)
SIZE: Kind[int] = Kind(
    values.parse_size, "BYTES", unit="bytes", annotation="int | str", types=(int,), toml=(int, str),
    wanted='a number of bytes or a string such as "64k"',
)  # fmt: skip
DURATION: Kind[float] = Kind(
    values.parse_duration, "DURATION", unit="seconds", annotation="float | str", types=(int, float),
    toml=(int, float, str), wanted='a number of seconds or a string such as "30s"',
)  # fmt: skip
SWITCH: Kind[bool] = Kind(
    values.parse_switch, "", annotation="bool", types=(bool,), toml=(bool,), wanted="true or false"
)
SWITCH_OR_CALLABLE: Kind[bool] = Kind(
    values.parse_switch, "", annotation="bool | Callable[[str, dict[str, str]], None]",
    admits=lambda value: isinstance(value, bool) or callable(value), toml=(bool,), wanted="true or false",
)  # fmt: skip
ON_OFF: Kind[bool] = Kind(
    values.parse_on_off, "on|off", annotation="bool", types=(bool,), toml=(bool, str), wanted="true or false",
    choices=("on", "off"),
)  # fmt: skip
ADDRESSES: Kind[tuple[str, ...]] = Kind(values.parse_binds, "ADDRESS", separator=",")
OPTIONAL_ADDRESSES: Kind[tuple[str, ...]] = Kind(values.parse_optional_binds, "ADDRESS", separator=",")
PROXIES: Kind[str] = Kind(values.parse_addresses, "ADDRESSES", separator=",")
FILE: Kind[str] = Kind(values.parse_path, "FILE", completes="file")
FILES: Kind[tuple[str, ...]] = Kind(values.parse_paths, "FILE", separator=",", completes="file")
PATHS: Kind[tuple[str, ...]] = Kind(
    values.parse_paths, "FILE", separator=",", completes="file", annotation="Iterable[str] | str",
    convert=values.program_paths,
)  # fmt: skip
PID_FILE: Kind[str] = Kind(values.parse_pid_file, "FILE", completes="file")
DIRECTORY: Kind[str] = Kind(values.parse_path, "DIRECTORY", completes="directory")
DIRECTORIES: Kind[tuple[str, ...]] = Kind(values.parse_paths, "DIRECTORIES", separator=",", completes="directory")
SCRIPT_NAME: Kind[str] = Kind(values.parse_script_name, "PATH|auto")
URL_PATH: Kind[str] = Kind(values.parse_url_path, "PATH")
PATH_LIMITS: Kind[tuple[tuple[str, float], ...]] = Kind(
    values.parse_path_limits, "PREFIX=DURATION", unit="seconds",
    annotation="Mapping[str, float | str] | Iterable[tuple[str, float | str]]", convert=values.program_path_limits,
    wanted='a table such as { "/reports" = "300s" }', separator=",", table=DURATION,
)  # fmt: skip
FUNCTION: Kind[str] = Kind(values.parse_function, "MODULE:FUNCTION")
NAME: Kind[str] = Kind(values.parse_name, "NAME")
ACCOUNT: Kind[str] = Kind(values.parse_account, "NAME", toml=(int, str), wanted="a name or a number")
UMASK: Kind[int | None] = Kind(values.parse_umask, "OCTAL")
VARIABLE: Kind[str] = Kind(str, "VALUE", toml=(int, str))
ENVIRONMENT: Kind[tuple[tuple[str, str], ...]] = Kind(
    # Environment variables cannot contain NUL, so it can separate them.
    values.parse_environment, "NAME=VALUE", wanted='a table such as { NAME = "value" }', separator="\0",
    table=VARIABLE, shown=_names_only,
)  # fmt: skip
STATIC: Kind[tuple[tuple[str, str], ...]] = Kind(
    values.parse_static, "PATH=DIRECTORY", annotation="Mapping[str, str] | Iterable[tuple[str, str]]",
    convert=values.static_directories, wanted='a table such as { "/static" = "./public" }', separator="\0",
    table=DIRECTORY,
)  # fmt: skip
PATTERNS: Kind[tuple[str, ...]] = Kind(
    values.parse_patterns, "PATTERN", annotation="Iterable[str] | str", convert=values.program_patterns, separator=",",
)  # fmt: skip
CODINGS: Kind[tuple[str, ...]] = Kind(
    values.parse_codings, "on|off|CODINGS", annotation="Iterable[str] | str | bool", types=(bool,), toml=(bool, str),
    convert=values.program_codings, separator=",", choices=("on", "off", "zstd", "br", "gzip"),
)  # fmt: skip
MEDIA_TYPES: Kind[tuple[str, ...]] = Kind(
    values.parse_media_types, "TYPES", annotation="Iterable[str] | str", convert=values.program_media_types,
    separator=",",
)  # fmt: skip
FILE_NAME: Kind[str] = Kind(values.parse_file_name, "NAME", types=(str,))
MOUNTS: Kind[tuple[Mount, ...]] = Kind(values.parse_mounts, "PLACE=APP", separator="\0")
SECRET: Kind[str] = Kind(values.parse_secret, "file:PATH|env:NAME")
HTTP_VERSIONS: Kind[str] = Kind(
    values.parse_http_versions, "auto|1|2", toml=(int, str), annotation="str | int",
    convert=lambda value: values.parse_http_versions(str(value)), choices=("auto", "1", "2"),
)  # fmt: skip
ACME_NAMES: Kind[tuple[str, ...]] = Kind(values.parse_acme_names, "NAME", separator=",")
CONTACTS: Kind[tuple[str, ...]] = Kind(values.parse_contacts, "MAIL", separator=",")
URL: Kind[str] = Kind(values.parse_acme_directory, "URL")
TLS_VERSION: Kind[str] = Kind(values.parse_tls_version, "VERSION", choices=("1.2", "1.3"))
CIPHERS: Kind[str] = Kind(values.parse_ciphers, "NAMES")
CLIENT_CERTIFICATES: Kind[str] = Kind(
    values.parse_client_certificates, "WORD", toml=(int, str), annotation="str | int",
    convert=lambda value: values.parse_client_certificates(str(int(value) if isinstance(value, int) else value)),
    choices=("none", "optional", "required"),
)  # fmt: skip
CERTIFICATES: Kind[tuple[CertificateFiles, ...]] = Kind(
    values.parse_certificates, "CERTFILE,KEYFILE", separator="\0", completes="file",
    annotation="Iterable[Mapping[str, str | list[str]]] | str", convert=values.program_certificates,
    wanted="a table [[tls]]", shown=values.shown_certificates,
)  # fmt: skip
DRIVER: Kind[str] = Kind(values.parse_driver, "NAME", choices=DRIVERS)
FIELD_VALUE: Kind[str] = Kind(values.parse_field_value, "TEXT")
LOG_FORMAT: Kind[str] = Kind(values.parse_log_format, "FORMAT", choices=("combined", "json"))
LOG_CONFIG: Kind[str] = Kind(
    values.parse_log_config, "FILE", wanted="the path of a file, or a table [logging],", completes="file",
    shown=_table_name,
)  # fmt: skip
