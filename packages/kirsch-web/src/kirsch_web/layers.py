"""The configuration layers of an application. Each is checked once; a path's settings are merged from its layers."""

from __future__ import annotations

from types import FunctionType, MethodType

from kirsch_web import publishing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kirsch_web.configuration import Layer
    from kirsch_web.interfaces import Application
    from kirsch_web.plan import Settings

KEPT = 4096
"""The number of layers, and of settings, that an application keeps. It bounds the memory that objects made for
single requests can take."""


class Layers:
    """The layers of one application: those of configuration sections, and those of decorators, by function or class.

    Args:
        app: the application. Its ``tools`` and ``namespaces`` decide which keys exist.
        mistakes: the list to which the mistakes of each layer are added when the layer is first seen.
    """

    def __init__(self, app: Application, mistakes: list[str]) -> None:
        self._app = app
        self._mistakes = mistakes
        self._checked: dict[int, tuple[Layer, bool]] = {}
        self._decorated: dict[object, Layer | None] = {}
        self._settings: dict[tuple[int, ...], Settings] = {}

    def check(self, layer: Layer) -> bool:
        """Return whether a layer is free of mistakes."""
        checked = self._checked.get(id(layer))
        if checked is None:
            from kirsch_web import configuration

            found = list(configuration.mistakes(layer, self._app.tools, self._app.namespaces))
            is_on = [key[6:-3] for key, on in layer.values.items() if on and key[:6] == "tools." and key[-3:] == ".on"]
            for name in is_on if not found else ():
                tool, prefix = self._app.tools[name], f"tools.{name}."
                given = {prefix + option: value for option, value in tool.defaults.items()}
                found += configuration.mistakes(configuration.Layer(given, layer.origin), self._app.tools)
                options = {**given, **{key: value for key, value in layer.values.items() if key.startswith(prefix)}}
                own = {key[len(prefix) :]: options[key] for key in options if not key.endswith((".on", ".priority"))}
                found += [f"{layer.origin}: tools.{name}: {mistake}" for mistake in tool.check(own)]
            self._mistakes += found
            checked = (layer, not found)
            _keep(self._checked, id(layer), checked)
        return checked[1]

    def of(self, thing: Any) -> Layer | None:
        """Return the configuration that decorators give a function or an object's class; None if there is none."""
        is_function = isinstance(thing, (FunctionType, MethodType))
        key = getattr(thing, "__func__", thing) if is_function else type(thing)
        try:
            return self._decorated[key]
        except KeyError:
            values = publishing.config_of(thing)
            name = getattr(thing, "__qualname__", thing) if is_function else key.__qualname__
            origin = f"{name}'s decorator" if is_function else f"class {name}"
            layer = None
            if values:
                from kirsch_web.configuration import Layer

                layer = Layer(values, origin)
            _keep(self._decorated, key, layer)
            return layer

    def merged(self, layers: Sequence[Layer]) -> Settings:
        """Return the merged configuration of ``layers``. Layers with mistakes are left out."""
        key = tuple(map(id, layers))
        found = self._settings.get(key)
        if found is None:
            from kirsch_web.plan import Settings

            found = Settings(self._app, tuple(layer for layer in layers if self.check(layer)))
            if len(found.layers) == len(layers):  # a layer that was left out can be freed, and another get its id
                _keep(self._settings, key, found)
        return found


def _keep(cache: dict[Any, Any], key: object, value: object) -> None:
    if len(cache) >= KEPT:
        cache.clear()
    cache[key] = value
