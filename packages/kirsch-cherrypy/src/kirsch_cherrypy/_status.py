"""Statuses: what a number means, and what a program may write for one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

# Reason and message of each status, as Python has them.
response_codes: dict[int, tuple[str, str]] = {each.value: (each.phrase, each.description) for each in HTTPStatus}
response_codes[404] = ("Not Found", "Nothing matches the given URI")
response_codes[500] = (
    "Internal Server Error",
    "The server encountered an unexpected condition which prevented it from fulfilling the request.",
)


def valid_status(status: Any) -> tuple[int, str, str]:
    """Number, reason and message of a status such as 404, "404" or "404 Gone fishing".

    None and an empty text mean 200. Raises ValueError if it is no number from 100 to 599.
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
