"""``--log-config``: the configuration of Python's ``logging`` in the processes that run the application.

The supervisor does not apply it: it must not run code of the application, and a handler may be such code.
"""

from __future__ import annotations

import os

from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch.config.schema import Settings


def apply(chosen: Settings) -> None:
    """Configure ``logging``, if the settings require it. Raises UsageError."""
    if not chosen.log_config:
        return
    import json

    label = chosen.label("log_config")
    try:
        if chosen.log_config.startswith("{"):
            _apply_table(json.loads(chosen.log_config))
        else:
            _apply_file(chosen.log_config)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None
    except OSError as error:
        # The error may be about a file that a handler writes.
        name = error.filename or chosen.log_config
        raise UsageError(f"{label}: {name}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - handlers and formatters may be the application's
        raise UsageError(f"{label}: logging cannot be configured: {_reason(error)}") from None


def _apply_table(table: Any) -> None:
    import logging.config  # the import takes longer than the rest of Kirsch's start

    if not isinstance(table, dict):
        raise UsageError("a table for logging.config.dictConfig is expected")
    # Existing loggers, such as the server's, remain enabled unless the table disables them.
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **table})


def _apply_file(path: str) -> None:
    import json
    import logging.config

    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".toml":
        from kirsch.config.toml import read_tables

        _apply_table(read_tables(path, path)[1])
        return
    with open(path, encoding="utf-8") as file:
        if suffix == ".json":
            try:
                table = json.load(file)
            except ValueError as error:
                raise UsageError(f"{path} is not JSON: {error}") from None
            _apply_table(table)
        else:
            logging.config.fileConfig(file, disable_existing_loggers=False)


def _reason(error: BaseException) -> str:
    """Return the texts of an exception and its cause: ``dictConfig`` names the handler, and the cause has the
    mistake."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, KeyError):
        text = f"there is no {text}"
    cause = "" if error.__cause__ is None else _reason(error.__cause__)
    return text if cause in text else f"{text}: {cause}"
