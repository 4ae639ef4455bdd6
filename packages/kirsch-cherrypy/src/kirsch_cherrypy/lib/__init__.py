"""The functions of tools, and helpers, under the names of ``cherrypy.lib``."""

from __future__ import annotations

from typing import Any

from kirsch_web.response import FileBody


def is_iterator(value: Any) -> bool:
    """Return whether ``value`` is an iterator, such as a generator."""
    return hasattr(value, "__next__") and hasattr(value, "__iter__") and iter(value) is value


def is_closable_iterator(value: Any) -> bool:
    """Return whether ``value`` is an iterator whose ``close()`` takes no argument."""
    if not is_iterator(value) or not callable(getattr(value, "close", None)):
        return False
    from inspect import signature

    try:
        signature(value.close).bind()
    except TypeError:
        return False
    except ValueError:  # inspect knows no signature of builtins such as a generator's close()
        return True
    return True


class file_generator(FileBody):
    """Yields the chunks of a file from its current position, and closes the file at its end."""

    def __init__(self, input: Any, chunkSize: int = 65536) -> None:
        super().__init__(input)
        self.input, self.chunkSize, self.BLOCK = input, chunkSize, chunkSize

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self.close()
            raise

    next = __next__

    def close(self) -> None:
        """Close the file, if it has a method ``close``."""
        if hasattr(self.input, "close"):
            self.input.close()


def as_iterable(value: Any) -> Any:
    """Convert a handler's result, such as text, bytes or a file, to an iterable of text and bytes."""
    if value is None or isinstance(value, (str, bytes)):
        return [value] if value else []
    return file_generator(value) if hasattr(value, "read") else value


def set_vary_header(response: Any, header_name: str) -> None:
    """Add a name to the Vary field of the response."""
    names = {each.strip() for each in response.headers.get("Vary", "").split(",") if each.strip()}
    names.add(header_name)
    response.headers["Vary"] = ", ".join(sorted(names))


def closing(resource: Any, pieces: Any) -> Any:
    """Yield ``pieces``. At the end, or if the client disconnects, close ``resource`` if it is a closable iterator."""
    try:
        yield from pieces
    finally:
        if is_closable_iterator(resource):
            resource.close()
