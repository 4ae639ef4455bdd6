"""The values of settings, merged from their sources, each with its origin."""

from __future__ import annotations

from kirsch.config.setting import Setting, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, NoReturn

    from kirsch.config.mounts import Mount


class MergedSettings:
    """The immutable values of the settings that a subclass declares."""

    __slots__ = ("_source", "_texts", "_values", "directory", "file", "mounts", "origins", "target", "warnings")

    declared: tuple[Setting, ...]
    """The settings in the order of their sections."""

    by_name: dict[str, Setting]

    def __init_subclass__(cls, sections: Iterable[str]) -> None:
        order = list(sections)
        found = [each for owner in cls.__mro__ for each in vars(owner).values() if isinstance(each, Setting)]
        cls.declared = tuple(sorted(found, key=lambda each: order.index(each.section)))
        cls.by_name = {each.name: each for each in cls.declared}

    def __init__(
        self,
        given: Mapping[str, tuple[str, str]],
        target: tuple[str, str] | None = None,
        *,
        mounts: tuple[Mount, ...] = (),
        file: str = "",
        warnings: Sequence[str] = (),
        source: tuple[Sequence[str], Mapping[str, str], str] = ((), {}, ""),
    ) -> None:
        """``given`` maps names to (text, origin); ``target`` is such a pair too. Other settings have their defaults.
        ``file`` is the settings file that was read, ``source`` the arguments of :func:`kirsch.config.sources.read`.
        Raises UsageError.
        """
        texts = {each.name: given.get(each.name, (each.default, "default")) for each in self.declared}
        origins = {name: origin for name, (_, origin) in texts.items()}
        values = {}
        mistakes = []
        for each in self.declared:
            try:
                values[each.name] = each.value(*texts[each.name])
            except UsageError as error:
                mistakes.append(str(error))
        if mistakes:
            raise UsageError("\n".join(mistakes))
        if target is not None:
            origins["app"] = target[1]
        put = object.__setattr__
        put(self, "target", target and target[0])
        for mount in values["mount"]:
            mount.origin = f"{origins['mount']} {mount.place}"
        put(self, "mounts", values["mount"] or mounts)
        put(self, "file", file)
        put(self, "warnings", tuple(warnings))
        put(self, "directory", source[2])
        put(self, "origins", origins)
        put(self, "_source", source)
        put(self, "_texts", {name: text for name, (text, _) in texts.items()})
        put(self, "_values", values)

    if TYPE_CHECKING:
        target: str | None
        mounts: tuple[Mount, ...]
        file: str
        warnings: tuple[str, ...]
        directory: str
        """The directory in which the command was started; ``chdir`` is relative to it."""
        origins: dict[str, str]
        _source: tuple[Sequence[str], Mapping[str, str], str]
        _texts: dict[str, str]
        _values: dict[str, Any]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are read once; {name} cannot be set")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    @property
    def values(self) -> Mapping[str, Any]:
        """The values by name."""
        return self._values

    def label(self, name: str) -> str:
        """Return the prefix of a message about the setting ``name``: the origin of its value."""
        return self.by_name[name].label(self.origins[name])

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (name, value, origin) of the application, the mounts and each setting, for display."""
        rows = [("app", self.target, self.origins["app"])] if self.target is not None else []
        rows += [("mount", str(mount), mount.origin) for mount in self.mounts]
        for each in self.declared:
            if each.name != "mount":
                text = self._texts[each.name]
                rows.append((each.name, each.kind.shown(text) if each.kind.shown else text, self.origins[each.name]))
        return rows
