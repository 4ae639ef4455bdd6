"""Loading of the application from its name, ``module:app``, with a one-line message for every error."""

from __future__ import annotations

import os
import sys

from kirsch.apps import signature
from kirsch.reports import application_traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType
    from typing import Any, NoReturn

    from kirsch.apps.mounted import Application
    from kirsch.config.mounts import Mount

_APPLICATION_NAMES = ("app", "application")
_FACTORY_NAMES = ("create_app", "make_app")

command_names: Callable[[], Iterable[str]] = tuple
"""Returns names that a missing module may have been meant for. The command line sets it, to those of its commands."""


class LoadError(Exception):
    """Raised if the application cannot be loaded. ``cause`` is the exception of the application, if there is one."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class Target:
    """The name of an application: ``module:app``, ``module:factory("prod")``, ``module`` or ``path/to/app.py:app``.

    Raises LoadError if the text has another form. Imports nothing.
    """

    __slots__ = ("arguments", "attribute", "file", "is_call", "keywords", "module", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.module, colon, attribute = text.partition(":")
        self.file = ""
        self.arguments: list[Any] = []
        self.keywords: dict[str, Any] = {}
        self.attribute, parenthesis, _ = attribute.partition("(")
        self.is_call = bool(parenthesis)
        if self.is_call and attribute != f"{self.attribute}()":
            self.arguments, self.keywords = _literals(text, attribute)
        if "/" in self.module or self.module.endswith(".py"):
            self.file = _file(text, self.module, attribute)
        elif not all(part.isidentifier() for part in self.module.split(".")):
            raise LoadError(f"{text!r} is not of the form module:app, as in `kirsch hello:app`")
        if colon and not all(part.isidentifier() for part in self.attribute.split(".")):
            raise LoadError(f"{text!r} is not of the form module:app, as in `kirsch hello:app`")


def load(text: str, *, factory: bool = False, interface: str = "auto") -> tuple[Callable[..., Any], str]:
    """Import the application that ``text`` names (see :class:`Target`); return it and its full name. With ``factory``,
    ``text`` names a function that creates the application. Raises LoadError, also if the object certainly cannot be
    called by ``interface``.
    """
    target = Target(text)
    factory = factory or target.is_call
    if target.file:
        module = _import_file(target.file)
    else:
        module = _import(target.module, f":{target.attribute}" if target.attribute else "")
    attribute = target.attribute
    if not attribute:
        attribute, is_factory = _default_attribute(module, factory)
        factory = factory or is_factory
    found = _attribute(module, attribute)
    name = f"{module.__name__}:{attribute}"
    if factory:
        given = target.text.partition(":")[2].removeprefix(target.attribute) if target.is_call else "()"
        found = _make(found, name, target)
        name += given
    _check_application(found, name, module, interface)
    return found, name


def find_import_problem(target: str, directories: Sequence[str] = ()) -> str:
    """Return why the application cannot be imported, as far as can be found without running its code; empty if no
    reason is found. Modules are searched in ``directories`` first.
    """
    try:
        parsed = Target(target)
    except LoadError as error:
        return str(error)
    first = parsed.module.partition(".")[0]
    if parsed.file or first in sys.modules:
        return ""
    path = sys.path
    sys.path = [*directories, *path]
    try:
        if any(finder.find_spec(first, None) is not None for finder in sys.meta_path):
            return ""
        return _missing(first, parsed.module[len(first) :] + (f":{parsed.attribute}" if parsed.attribute else ""))
    finally:
        sys.path = path


def load_all(
    target: str | None, *, factory: bool = False, mounts: Sequence[Mount] = (), interface: str = "auto"
) -> tuple[Application, str]:
    """Load ``target`` and the mounted applications. Return the application, or a ``Mounted`` if there are mounts,
    and all names. ``interface`` applies to each application without its own setting. Raises LoadError."""
    if not mounts:
        assert target is not None
        return load(target, factory=factory, interface=interface)
    from kirsch.apps.mounted import Mounted, MountedApplication

    names = []
    failures: list[LoadError] = []
    applications: list[MountedApplication] = []
    fallback = None
    if target is not None:
        try:
            found, name = load(target, factory=factory, interface=interface)
            fallback = MountedApplication(found, _interface(found, interface), host="", path="", name=name)
            names.append(name)
        except LoadError as error:
            failures.append(error)
    loaded: dict[str, tuple[Callable[..., Any], str] | None] = {}
    for mount in mounts:
        # A mount table with several hosts has one application, even if a factory creates it.
        if mount.origin not in loaded:
            loaded[mount.origin] = None
            try:
                loaded[mount.origin] = load(mount.app, factory=mount.factory, interface=mount.interface or interface)
            except LoadError as error:
                # The origin of a mount on the command line already contains its path: --mount /shop.
                is_named = mount.origin.startswith(("-", "KIRSCH_"))
                where = mount.origin if is_named else f"{mount.origin}: the mount {mount.place}"
                failures.append(LoadError(f"{where}: {error}", error.cause))
        pair = loaded[mount.origin]
        if pair is not None:
            found, name = pair
            called_by = mount.interface or _interface(found, interface)
            applications.append(MountedApplication(found, called_by, host=mount.host, path=mount.path, name=name))
            names.append(f"{name} at {mount.place}")
    if failures:
        raise failures[0] if len(failures) == 1 else _all_of(failures)
    if fallback is not None:
        applications.append(fallback)
    mounted = Mounted(applications)
    if mounted.interface == "asgi":
        of_all = [*applications[-1:], *applications[:-1]] if fallback is not None else applications
        names = [f"{name} ({each.interface.upper()})" for name, each in zip(names, of_all, strict=True)]
    return mounted, ", ".join(names)


def _interface(found: Callable[..., Any], interface: str) -> str:
    return signature.interface_of(found) if interface == "auto" else interface


def load_function(target: str) -> Callable[..., Any]:
    """Import ``module:function``. Raises LoadError."""
    module_name, _, attribute = target.partition(":")
    found = _attribute(_import(module_name, f":{attribute}"), attribute)
    if not callable(found):
        raise LoadError(f"{target} is {_described(found)} and not a function: it cannot be called")
    function: Callable[..., Any] = found
    return function


def _all_of(failures: list[LoadError]) -> LoadError:
    """Combine failures into one error with a line for each; it has the first cause that has a traceback."""
    cause = next((failure.cause for failure in failures if failure.cause is not None), None)
    return LoadError("\n".join(map(str, failures)), cause)


def _literals(target: str, call: str) -> tuple[list[Any], dict[str, Any]]:
    """Parse the arguments of a factory call such as ``factory("prod", debug=True)``. Raises LoadError."""
    import ast

    example = "'shop:create_app(\"prod\", debug=True)'"
    try:
        parsed = ast.parse(call, mode="eval").body
    except (SyntaxError, ValueError):
        raise LoadError(f"{target!r}: this is not a call of a factory; write {example}") from None
    if not isinstance(parsed, ast.Call):
        raise LoadError(f"{target!r}: this is not a call of a factory; write {example}")
    for node in [*parsed.args, *(keyword.value for keyword in parsed.keywords)]:
        try:
            ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            shown = ast.unparse(node)
            quotes = f"; did you mean {shown!r} in quotes?" if isinstance(node, ast.Name) else ""
            raise LoadError(
                f"{target!r}: {shown} is not a literal, and arguments of a factory are: strings, numbers, True, None, "
                f"lists{quotes}"
            ) from None
    if any(keyword.arg is None for keyword in parsed.keywords):
        raise LoadError(f"{target!r}: ** is not possible here; write each argument, as in {example}")
    keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in parsed.keywords}
    return [ast.literal_eval(node) for node in parsed.args], keywords


def _file(target: str, path: str, attribute: str) -> str:
    """Return the absolute path of the Python file ``path``. Raises LoadError, with a suggestion."""
    absolute = os.path.abspath(path)
    if os.path.isfile(absolute):
        if not path.endswith(".py"):
            raise LoadError(f"{target!r}: {path} is not a Python file, whose name ends in .py")
        if "." in os.path.basename(path)[:-3]:
            raise LoadError(f"{target!r}: a module has no dot in its name; rename {path}")
        return absolute
    suffix = f":{attribute}" if attribute else ""
    candidates = [f"{path}.py", *([f"{os.path.dirname(path)}.py"] if os.path.dirname(path) else [])]
    if os.path.isfile(candidates[0]):
        raise LoadError(f"{target!r}: there is no file {path}; did you mean {candidates[0]}{suffix}?")
    parent, last = os.path.split(path.rstrip("/"))
    module = parent.replace("/", ".")
    if last.isidentifier() and not attribute and parent and (os.path.isfile(candidates[1]) or _is_package(parent)):
        raise LoadError(f"{target!r}: there is no file {path}; did you mean {module}:{last}?")
    if os.path.isdir(absolute):
        raise LoadError(f"{target!r} is a directory; name a file in it, such as {os.path.join(path, 'app.py')}")
    from kirsch.suggest import nearest

    directory = os.path.dirname(path)
    try:
        files = [name for name in os.listdir(directory or ".") if name.endswith(".py")]
    except OSError:
        raise LoadError(f"{target!r}: there is no directory {os.path.abspath(directory)}") from None
    near = nearest(os.path.basename(path), files)
    hint = f"; did you mean {os.path.join(directory, near)}{suffix}?" if near else ""
    raise LoadError(f"{target!r}: there is no file {absolute}{hint}")


def _is_package(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, "__init__.py"))


def _import_file(path: str) -> ModuleType:
    """Import a Python file as a module: by its name in its directory, or as a part of its package."""
    directory, file = os.path.split(path)
    name = file[:-3]
    if name == "__init__":
        directory, name = os.path.split(directory)
    while _is_package(directory):
        directory, package = os.path.split(directory)
        name = f"{package}.{name}"
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = _import(name, "")
    if os.path.realpath(getattr(module, "__file__", None) or "") != os.path.realpath(path):
        holder = getattr(module, "__file__", None) or "Python itself"
        raise LoadError(f"{path} cannot be imported as {name}: that is the name of {holder} too; rename the file")
    return module


def _import(name: str, suffix: str) -> ModuleType:
    try:
        # Not importlib.import_module, which would add a frame to the traceback and import another module.
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
    missing = error.name or name
    raise LoadError(_missing(missing, name[len(missing) :] + suffix)) from None


def _missing(name: str, rest: str) -> str:
    """Return the message for a missing module ``name``, with a suggestion; ``rest`` is the text after the name."""
    from kirsch.suggest import nearest

    parent, _, last = name.rpartition(".")
    package = sys.modules.get(parent) if parent else None
    places = list(getattr(package, "__path__", [])) if parent else [each for each in sys.path if not _is_standard(each)]
    if parent and not places:
        mended = f"; did you mean {parent}:{last}?" if hasattr(package, last) and not rest else ""
        return f"there is no module {name!r}: {parent} is a module and not a package{mended}"
    prefix = f"{parent}." if parent else ""
    where = f"in the package {parent}" if parent else f"{_here()} elsewhere on the Python path"
    line = f"there is no module {prefix + last!r} {where}"
    near = nearest(last, _modules_in(places))
    if near:
        return f"{line}; did you mean {prefix}{near}{rest}?"
    if parent:
        return line
    if not rest and (near := nearest(last, command_names())):
        return f"{line}; did you mean the command `kirsch {near}`?"
    return f"{line}; --chdir or --pythonpath can say where it is"


def _here() -> str:
    """Return ``in /srv/shop or`` for a message, with the reason if modules in that directory cannot be found."""
    try:
        here = os.getcwd()
    except OSError:
        return "in the current directory, which has been removed, or"
    return f"in {here} or" if os.access(here, os.R_OK | os.X_OK) else f"in {here}, which this user cannot read, or"


def _is_standard(directory: str) -> bool:
    """Return whether the directory belongs to the standard library, whose modules are no applications."""
    standard = os.path.dirname(os.__file__)
    return directory in (standard, os.path.join(standard, "lib-dynload")) or directory.endswith(".zip")


def _modules_in(directories: Iterable[str]) -> list[str]:
    names: list[str] = []
    for directory in directories:
        try:
            entries = list(os.scandir(directory or "."))
        except OSError:
            continue  # an entry of sys.path may be missing, or no directory
        for entry in entries:
            stem = entry.name.removesuffix(".py")
            is_module = stem != entry.name or os.path.isfile(os.path.join(entry.path, "__init__.py"))
            if is_module and stem.isidentifier() and stem != "__init__":
                names.append(stem)
    return names


def _default_attribute(module: ModuleType, factory: bool) -> tuple[str, bool]:
    """Return the name of the application in ``module``, and whether it is a factory. Raises LoadError."""
    for name in () if factory else _APPLICATION_NAMES:
        if hasattr(module, name):
            return name, False
    for name in _FACTORY_NAMES:
        if callable(getattr(module, name, None)):
            return name, True
    names = _FACTORY_NAMES if factory else (*_APPLICATION_NAMES, *_FACTORY_NAMES)
    tried = " nor ".join(repr(name) for name in names)
    # A project of `django-admin startproject`: the user named the package, but means its module wsgi or asgi.
    inner = next((each for each in ("wsgi", "asgi") if each in _modules_in(getattr(module, "__path__", []))), None)
    offer = f"; did you mean {module.__name__}.{inner}?" if inner else _offer(module, names[0])
    raise LoadError(f"{module.__name__} has neither {tried}{offer}")


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    walked = module.__name__
    names = path.split(".")
    for depth, name in enumerate(names):
        try:
            found = getattr(found, name)
        except AttributeError:
            rest = "".join(f".{each}" for each in names[depth + 1 :])
            offer = _offer(module, name, rest) if depth == 0 else ""
            raise LoadError(f"{walked} has no {name!r}{offer}") from None
        walked += ("." if depth else ":") + name
    return found


def _offer(module: ModuleType, wanted: str, rest: str = "") -> str:
    """Return the end of a message: a suggestion of names in the module. ``rest`` is the part of the name after the
    module's attribute."""
    from kirsch.suggest import nearest

    public = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    near = nearest(wanted, (name for name, value in public if rest or callable(value)))
    if near:
        return f"; did you mean {module.__name__}:{near}{rest}?"
    candidates = sorted(name for name, value in public if _may_be_meant(module, name, value))
    if candidates:
        return f"; what can be called there: {', '.join(candidates[:8])}"
    return "; nothing there can be called"


def _may_be_meant(module: ModuleType, name: str, value: object) -> bool:
    if name.startswith("_") or not callable(value) or type(value).__module__ == "typing":
        return False
    if hasattr(value, "__qualname__"):  # a class or a function: probably not meant if it was imported from elsewhere
        return getattr(value, "__module__", None) == module.__name__
    return True


def _make(factory: Any, name: str, target: Target) -> Any:
    if not callable(factory):
        raise LoadError(f"{name} is {_described(factory)} and not a factory: it cannot be called")
    if signature.is_coroutine_function(factory):
        raise LoadError(f"{name} is a coroutine function; a factory is a plain function that returns the application")
    try:
        return factory(*target.arguments, **target.keywords)
    except TypeError as error:
        if application_traceback(error) is None:
            if target.arguments or target.keywords:
                raise LoadError(f"{target.text!r} cannot be called so: {error}") from None
            raise LoadError(
                f"{name} is called without arguments, and needs some ({error}); write them, as in "
                f"'{name}(\"prod\")', or omit --factory and () if it is the application itself"
            ) from None
        raise LoadError(f"the factory {name} raised {type(error).__name__}", error) from error
    except SystemExit as error:
        raise LoadError(f"the factory {name} ended the program: it raised SystemExit({error.code})", error) from error
    except Exception as error:
        raise LoadError(f"the factory {name} raised {type(error).__name__}", error) from error


def _check_application(found: Any, name: str, module: ModuleType, interface: str) -> None:
    is_made = name.endswith(")")
    if not callable(found):
        what = "returned" if is_made else "is"
        offer = "" if is_made else _offer(module, "application")
        raise LoadError(f"{name} {what} {_described(found)}, and an application is something that can be called{offer}")
    if interface == "auto" and signature.interface_of(found) == "asgi":
        return
    if (package := _package_with_a_server(found)) is not None:
        raise LoadError(
            f"{name} is an application of {package}, which is neither WSGI nor ASGI; {package} serves it by itself"
        )
    if interface != "auto" and (why := signature.interface_problem(found, interface)):
        raise LoadError(f"{name} {why}")
    trouble = signature.find_problem(found) if interface != "asgi" else None
    if trouble is None:
        return
    if trouble.is_asgi:
        raise LoadError(
            f"{name} looks like an ASGI application, and cannot be called as ASGI 3 does it: "
            "await app(scope, receive, send); for ASGI 2 there is asgiref.compatibility.guarantee_single_callable"
        )
    line = f"{name} {trouble}, and a WSGI application is called with two, environ and start_response"
    if trouble.is_factory and not is_made:
        line = f"{name} {trouble}, so it is no application; if it makes one, write {name}{trouble.call}"
    raise LoadError(line)


def _package_with_a_server(found: Any) -> str | None:
    packages = (each.__module__.partition(".")[0] for each in type(found).__mro__)
    return next((package for package in packages if package in ("aiohttp", "tornado")), None)


def _described(value: object) -> str:
    kind = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
