"""HTTP statuses: their reasons and messages, and the parsing of statuses that programs set."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

# The reason and message of each status, from the standard library.
response_codes: dict[int, tuple[str, str]] = {each.value: (each.phrase, each.description) for each in HTTPStatus}
response_codes[404] = ("Not Found", "Nothing matches the given URI")
response_codes[500] = (
    "Internal Server Error",
    "The server encountered an unexpected condition which prevented it from fulfilling the request.",
)


def valid_status(status: Any) -> tuple[int, str, str]:
    """Return number, reason and message of a status such as 404, "404" or "404 Gone fishing".

    None and an empty string mean 200. Raises ValueError if the number is not from 100 to 599.
    """
    if status == 200 or not status:
        return _OK
    given, _, own_reason = status.partition(" ") if isinstance(status, str) else (status, "", "")
    try:
        number = int(given)
    except (TypeError, ValueError):
        raise ValueError(f"Illegal response status from server ({given!r} is non-numeric).") from None
    if number not in range(100, 600):
        raise ValueError(f"Illegal response status from server ({given!r} is out of range).")
    reason, message = response_codes.get(number, ("", ""))
    return number, own_reason.strip() or reason, message


_OK = (200, *response_codes[200])
