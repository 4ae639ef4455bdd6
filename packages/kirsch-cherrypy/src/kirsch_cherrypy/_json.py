"""JSON functions under the names that CherryPy programs import."""

from __future__ import annotations

import json as json
from typing import Any

decode = json.loads


def encode(value: Any) -> Any:
    """Yield the JSON of ``value`` in chunks of bytes."""
    for chunk in json.JSONEncoder().iterencode(value):
        yield chunk.encode()
