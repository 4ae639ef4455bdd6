"""The built-in tools, which the configuration can switch on by name. Each is imported when it is first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from kirsch_web.hooks import Tool

MODULES: dict[str, str] = {
    "basic_auth": "protect:BasicAuthTool",
    "cors": "cors:CorsTool",
    "csrf": "protect:CsrfTool",
    "etags": "conditions:EtagsTool",
    "expires": "protect:expires",
    "form_in": "media:form_in",
    "gzip": "protect:gzip",
    "json_in": "media:json_in",
    "json_out": "media:JsonOutTool",
    "proxy": "protect:ProxyTool",
    "rate_limit": "rates:RateLimitTool",
    "security_headers": "protect:SecurityHeadersTool",
    "session": "sessions:SessionTool",
    "trailing_slash": "protect:trailing_slash",
}
"""The tools by name, as ``module:tool``, or as ``module:class`` if the tool has a class of its own."""


class BuiltinTools:
    """The tools of one application by name: the tools passed to it, then the built-in ones."""

    def __init__(self, given: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in _checked(given):
            if tool.name in self._tools:
                from kirsch_web.errors import ConfigError

                raise ConfigError(f"two tools are named {tool.name}")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            module_name, _, attribute = MODULES[name].partition(":")
            from importlib import import_module

            found = getattr(import_module(f"kirsch_web.{module_name}"), attribute)
            tool = self._tools[name] = found() if isinstance(found, type) else found
        return tool

    def get(self, name: str) -> Tool | None:
        """Return the tool named ``name``, or None if there is none."""
        return self[name] if name in self else None  # noqa: SIM401 - this is what `get` means here

    def __contains__(self, name: str) -> bool:
        return name in self._tools or name in MODULES

    def __iter__(self) -> Iterator[str]:
        yield from self._tools
        yield from (name for name in MODULES if name not in self._tools)


def _checked(given: Iterable[Any]) -> Iterator[Tool]:
    """Yield the tools. Raises ConfigError with a hint if an item is not a tool."""
    from kirsch_web.errors import ConfigError
    from kirsch_web.hooks import Tool

    try:
        tools = list(given)
    except TypeError:
        raise ConfigError(f"App(tools=...) takes a list of tools, as in tools=[...], and not {given!r}") from None
    for tool in tools:
        if isinstance(tool, Tool):
            yield tool
        elif isinstance(tool, str) and tool in MODULES:
            raise ConfigError(f"App(tools=...): a built-in tool is switched on by the configuration: tools.{tool}.on")
        elif callable(tool):
            name = getattr(tool, "__name__", type(tool).__name__)
            hint = f"call it, as in tools=[web.{name}(...)]" if name in MODULES else "decorate it with @web.tool(...)"
            raise ConfigError(f"App(tools=...): {name} is a function or a class and not yet a tool; {hint}")
        else:
            raise ConfigError(f"App(tools=...): {tool!r} is not a tool")
