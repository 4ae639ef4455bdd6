"""The tools that the configuration knows by name without being given to the application, loaded when one is used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kirsch_web.hooks import Tool

MODULES: dict[str, str] = {
    "basic_auth": "protect:BasicAuthTool",
    "csrf": "protect:CsrfTool",
    "etags": "protect:EtagsTool",
    "expires": "protect:ExpiresTool",
    "form_in": "media:FormInTool",
    "gzip": "protect:GzipTool",
    "json_in": "media:JsonInTool",
    "json_out": "media:JsonOutTool",
    "proxy": "protect:ProxyTool",
    "security_headers": "protect:SecurityHeadersTool",
    "session": "sessions:SessionTool",
    "trailing_slash": "protect:TrailingSlashTool",
}
"""Names of tools, and where each is: ``module:class``."""


class BuiltinTools:
    """The tools of one application by name: those that it was given, then the built-in ones."""

    def __init__(self, given: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in given:
            if tool.name in self._tools:
                from kirsch_web.errors import ConfigError

                raise ConfigError(f"two tools are named {tool.name}")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            module_name, _, attribute = MODULES[name].partition(":")
            from importlib import import_module

            tool = self._tools[name] = getattr(import_module(f"kirsch_web.{module_name}"), attribute)()
        return tool

    def get(self, name: str) -> Tool | None:
        """The tool of a name; None where there is none."""
        return self[name] if name in self else None  # noqa: SIM401 - this is what `get` means here

    def __contains__(self, name: str) -> bool:
        return name in self._tools or name in MODULES

    def __iter__(self) -> Iterator[str]:
        yield from self._tools
        yield from (name for name in MODULES if name not in self._tools)
