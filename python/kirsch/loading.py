"""From ``module:app`` to the application, with one line for everything that can go wrong on the way."""

from __future__ import annotations

import os
import sys

from kirsch.reports import application_traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType, ModuleType
    from typing import Any, NoReturn

    from kirsch.mounts import Mount

# inspect.CO_*; inspect itself takes as long to import as all of this package.
_CO_VARARGS = 0x04
_CO_COROUTINE = 0x80
_CO_ASYNC_GENERATOR = 0x200

_APPLICATION_NAMES = ("app", "application")
_FACTORY_NAMES = ("create_app", "make_app")


class LoadError(Exception):
    """The application cannot be had. ``cause`` is the application's own exception, where there is one."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


def load(target: str, *, factory: bool = False) -> tuple[Callable[..., Any], str]:
    """Import ``module:app``, ``module:factory()`` or ``module``; return the application and its full name.

    With ``factory`` the name is that of a function that makes the application. Raises LoadError.
    """
    module_name, colon, attribute = target.partition(":")
    if attribute.endswith("()"):
        attribute = attribute[:-2]
        factory = True
    _check_target(target, module_name, attribute, colon)
    module = _import(module_name, f":{attribute}" if attribute else "")
    if not attribute:
        attribute = _default_attribute(module, factory)
    found = _attribute(module, attribute)
    name = f"{module_name}:{attribute}"
    if factory:
        found = _make(found, name)
        name += "()"
    _check_application(found, name, module)
    return found, name


def load_all(
    target: str | None, *, factory: bool = False, mounts: Sequence[Mount] = ()
) -> tuple[Callable[..., Any], str]:
    """The application ``target`` and those mounted beside it, as one; and the names of all. Raises LoadError."""
    if not mounts:
        assert target is not None
        return load(target, factory=factory)
    from kirsch.mounts import combine

    names = []
    fallback = None
    if target is not None:
        fallback, name = load(target, factory=factory)
        names.append(name)
    mounted: list[tuple[Mount, Callable[..., Any]]] = []
    loaded: dict[str, tuple[Callable[..., Any], str]] = {}
    for mount in mounts:
        # A table with several hosts is one application, also where a factory makes it.
        if mount.origin not in loaded:
            try:
                loaded[mount.origin] = load(mount.app, factory=mount.factory)
            except LoadError as error:
                raise LoadError(f"{mount.origin}: the mount {mount.place}: {error}", error.cause) from error.__cause__
        app, name = loaded[mount.origin]
        mounted.append((mount, app))
        names.append(f"{name} at {mount.place}")
    return combine(mounted, fallback), ", ".join(names)


def load_function(target: str) -> Callable[..., Any]:
    """Import ``module:function``. Raises LoadError."""
    module_name, _, attribute = target.partition(":")
    found = _attribute(_import(module_name, f":{attribute}"), attribute)
    if not callable(found):
        raise LoadError(f"{target} is {_described(found)} and not a function: it cannot be called")
    function: Callable[..., Any] = found
    return function


def _check_target(target: str, module: str, attribute: str, colon: str) -> None:
    if "/" in module or module.endswith(".py"):
        directory, file = os.path.split(module)
        mended = f"{file.removesuffix('.py')}:{attribute or 'app'}"
        chdir = f"--chdir {directory} " if directory else ""
        raise LoadError(f"{target!r} is a file, and a module is wanted; did you mean `kirsch {chdir}{mended}`?")
    if not all(part.isidentifier() for part in module.split(".")):
        raise LoadError(f"{target!r} is not of the form module:app, as in `kirsch hello:app`")
    if "(" in attribute:
        raise LoadError(f"{target!r}: a factory is called without arguments; give it a function that needs none")
    if colon and not all(part.isidentifier() for part in attribute.split(".")):
        raise LoadError(f"{target!r} is not of the form module:app, as in `kirsch hello:app`")


def _import(name: str, suffix: str) -> ModuleType:
    try:
        # Not importlib.import_module: it would be one more frame, and one more import.
        __import__(name)
    except ModuleNotFoundError as error:
        if application_traceback(error) is None:
            _refuse_missing(name, suffix, error)
        raise LoadError(f"{name} could not be imported: {error}", error) from error
    except SystemExit as error:
        raise LoadError(
            f"{name} ended the program while it was imported: it raised SystemExit({error.code})", error
        ) from error
    except Exception as error:
        raise LoadError(f"{name} could not be imported: it raised {type(error).__name__}", error) from error
    return sys.modules[name]


def _refuse_missing(name: str, suffix: str, error: ModuleNotFoundError) -> NoReturn:
    parent, _, last = (error.name or name).rpartition(".")
    package = sys.modules.get(parent) if parent else None
    places = list(getattr(package, "__path__", [])) if parent else sys.path
    if parent and not places:
        raise LoadError(f"there is no module {name!r}: {parent} is a module and not a package") from None
    near = _nearest(last, _modules_in(places))
    rest = name[len(error.name or name) :]
    prefix = f"{parent}." if parent else ""
    hint = f"; did you mean {prefix}{near}{rest}{suffix}?" if near else ""
    where = f"in the package {parent}" if parent else f"in {os.getcwd()} or elsewhere on the Python path"
    mend = hint or ("" if parent else "; --chdir or --pythonpath can say where it is")
    raise LoadError(f"there is no module {prefix + last!r} {where}{mend}") from None


def _modules_in(directories: Iterable[str]) -> list[str]:
    names: list[str] = []
    for directory in directories:
        try:
            entries = list(os.scandir(directory or "."))
        except OSError:
            continue  # not every entry of sys.path exists, or is a directory
        for entry in entries:
            stem = entry.name.removesuffix(".py")
            is_module = stem != entry.name or os.path.isfile(os.path.join(entry.path, "__init__.py"))
            if is_module and stem.isidentifier() and stem != "__init__":
                names.append(stem)
    return names


def _nearest(word: str, words: Iterable[str]) -> str | None:
    import difflib

    by_folded = {candidate.lower(): candidate for candidate in words}
    near = difflib.get_close_matches(word.lower(), by_folded, n=1)
    return by_folded[near[0]] if near else None


def _default_attribute(module: ModuleType, factory: bool) -> str:
    names = _FACTORY_NAMES if factory else _APPLICATION_NAMES
    for name in names:
        if hasattr(module, name):
            return name
    tried = " nor ".join(repr(name) for name in names)
    raise LoadError(f"{module.__name__} has neither {tried}{_offer(module, names[0])}")


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    walked = module.__name__
    for depth, name in enumerate(path.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            offer = _offer(module, name) if depth == 0 else ""
            raise LoadError(f"{walked} has no {name!r}{offer}") from None
        walked += ("." if depth else ":") + name
    return found


def _offer(module: ModuleType, wanted: str) -> str:
    """What else the module holds that could have been meant."""
    near = _nearest(wanted, (name for name in vars(module) if not name.startswith("_")))
    if near:
        return f"; did you mean {module.__name__}:{near}?"
    candidates = sorted(name for name, value in vars(module).items() if _may_be_meant(module, name, value))
    if candidates:
        return f"; what can be called there: {', '.join(candidates[:8])}"
    return "; nothing there can be called"


def _may_be_meant(module: ModuleType, name: str, value: object) -> bool:
    if name.startswith("_") or not callable(value) or type(value).__module__ == "typing":
        return False
    if hasattr(value, "__qualname__"):  # a class or a function: imported ones are hardly meant
        return getattr(value, "__module__", None) == module.__name__
    return True


def _make(factory: Any, name: str) -> Any:
    if not callable(factory):
        raise LoadError(f"{name} is {_described(factory)} and not a factory: it cannot be called")
    code = _code(factory)
    if code is not None and code.co_flags & _CO_COROUTINE:
        raise LoadError(f"{name} is a coroutine function; a factory is a plain function that returns the application")
    try:
        return factory()
    except TypeError as error:
        if application_traceback(error) is None:
            raise LoadError(
                f"{name} is called without arguments, and needs some ({error}); give a factory that needs none, "
                "or leave --factory and () away if it is the application itself"
            ) from None
        raise LoadError(f"the factory {name} raised {type(error).__name__}", error) from error
    except SystemExit as error:
        raise LoadError(f"the factory {name} ended the program: it raised SystemExit({error.code})", error) from error
    except Exception as error:
        raise LoadError(f"the factory {name} raised {type(error).__name__}", error) from error


def _check_application(found: Any, name: str, module: ModuleType) -> None:
    if not callable(found):
        what = "returned" if name.endswith("()") else "is"
        offer = "" if name.endswith("()") else _offer(module, "application")
        raise LoadError(f"{name} {what} {_described(found)}, and an application is something that can be called{offer}")
    if _looks_like_asgi(found):
        raise LoadError(
            f"{name} looks like an ASGI application, and Kirsch serves WSGI for now; "
            "a2wsgi.ASGIMiddleware makes the one from the other"
        )
    code = _code(found)
    if code is not None and not isinstance(found, type) and code.co_argcount == 0 and not code.co_flags & _CO_VARARGS:
        raise LoadError(f"{name} takes no arguments, so it is no application; if it makes one, write {name}()")


def _looks_like_asgi(found: Any) -> bool:
    code = _code(found)
    if code is None:
        return False
    if code.co_flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR):
        return True
    arguments = code.co_varnames[: code.co_argcount]
    return arguments[-3:] == ("scope", "receive", "send") or arguments[-1:] == ("scope",)


def _code(found: Any) -> CodeType | None:
    """The code that runs when ``found`` is called; None for what is not written in Python."""
    while hasattr(found, "func") and type(found).__name__ == "partial":
        found = found.func
    if isinstance(found, type):
        function = _looked_up(found, "__init__")
    else:
        function = getattr(found, "__func__", found)
        if not hasattr(function, "__code__"):
            function = _looked_up(type(found), "__call__")
    code: CodeType | None = getattr(function, "__code__", None)
    return code


def _looked_up(kind: type, name: str) -> object:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _described(value: object) -> str:
    kind = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
