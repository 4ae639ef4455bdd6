"""The command line with an application that cannot be loaded: one line that says why, and status 3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from command_line import (
    ANY_PORT,
    APP,
    Write,
    get,
    module_writer,
    not_loaded,
    run,
    without_version,
    working_directory,
)

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve

here = pytest.fixture(working_directory)
write = pytest.fixture(module_writer)


def test_a_module_that_is_not_there_suggests_one_that_is(write: Write, here: Path) -> None:
    write(hello=APP)
    assert not_loaded("helo:app", cwd=here) == (
        f"there is no module 'helo' in {here} or elsewhere on the Python path; did you mean hello:app?"
    )
    assert not_loaded("Hello", cwd=here).endswith("did you mean hello?")
    assert not_loaded("xyzzy_frobnicate", cwd=here).endswith("--chdir or --pythonpath can say where it is")


def test_directory_missing_from_pythonpath_is_named_when_import_fails(here: Path) -> None:
    line = not_loaded("--pythonpath", "missing,.", "xyzzy_frobnicate", cwd=here)
    assert line.endswith("; --pythonpath: there is no missing")


def test_a_submodule_that_is_not_there_suggests_its_sister(here: Path) -> None:
    (here / "package").mkdir()
    (here / "package" / "__init__.py").touch()
    (here / "package" / "inner.py").write_text(APP, encoding="utf-8")
    assert not_loaded("package.iner:app", cwd=here) == (
        "there is no module 'package.iner' in the package package; did you mean package.inner:app?"
    )
    assert not_loaded("pakage.inner:app", cwd=here).endswith("did you mean package.inner:app?")


def test_a_module_is_no_package(write: Write, here: Path) -> None:
    write(hello=APP)
    assert not_loaded("hello.app", cwd=here) == (
        "there is no module 'hello.app': hello is a module and not a package; did you mean hello:app?"
    )


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("hello.py", "hello:app"),
        ("./hello.py:app", "hello:app"),
        ("src/deep.py", "deep:application"),
        ("src/made.py", "made:create_app()"),
        ("src/made.py:make('x')", "made:make('x')"),
        ("package/inner.py", "package.inner:app"),
        ("src/with-dash.py", "with-dash:app"),
    ],
)
def test_a_file_is_served_as_the_module_that_it_is(target: str, name: str, write: Write, here: Path) -> None:
    write(hello=APP)
    for folder in ("src", "package"):
        (here / folder).mkdir()
    (here / "src" / "deep.py").write_text("import beside\n" + APP.replace("app(", "application("), encoding="utf-8")
    (here / "src" / "beside.py").touch()
    (here / "src" / "with-dash.py").write_text(APP, encoding="utf-8")
    made = APP.replace("app(", "_app(") + "def create_app():\n    return _app\ndef make(x):\n    return _app\n"
    (here / "src" / "made.py").write_text(made, encoding="utf-8")
    (here / "package" / "__init__.py").touch()
    (here / "package" / "other.py").touch()
    (here / "package" / "inner.py").write_text("from . import other\n" + APP, encoding="utf-8")
    done = run("--check-config", target, cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} is ok\n", "")


def test_a_file_that_cannot_be_served_is_told(write: Write, here: Path) -> None:
    write(hello=APP)
    (here / "notes.txt").touch()
    (here / "sub").mkdir()
    (here / "sub" / "types.py").write_text(APP, encoding="utf-8")
    assert not_loaded("helo.py", cwd=here) == f"'helo.py': there is no file {here}/helo.py; did you mean hello.py?"
    assert not_loaded("hello/app", cwd=here) == "'hello/app': there is no file hello/app; did you mean hello:app?"
    assert not_loaded("./hello", cwd=here) == "'./hello': there is no file ./hello; did you mean ./hello.py?"
    assert not_loaded("no/where.py", cwd=here) == f"'no/where.py': there is no directory {here}/no"
    assert not_loaded("./", cwd=here) == "'./' is a directory; name a file in it, such as ./app.py"
    assert not_loaded("./notes.txt", cwd=here).endswith("./notes.txt is not a Python file, whose name ends in .py")
    assert not_loaded("sub/types.py", cwd=here).endswith("rename the file")


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("make('prod')", "prod None False"),
        ('make("prod", (1, 2))', "prod (1, 2) False"),
        ("make(name='a,b=c', debug=True)", "a,b=c None True"),
        ("shelf.make('deep')", "deep None False"),
    ],
)
def test_a_factory_gets_the_arguments_that_are_written(
    call: str, shown: str, serve: Serve, write: Write, here: Path
) -> None:
    write(
        made="""
        def make(name, numbers=None, debug=False):
            def app(environ, start_response):
                start_response("200 OK", [("Content-Type", "text/plain")])
                return [f"{name} {numbers} {debug}".encode()]
            return app

        class shelf:
            make = staticmethod(make)
        """
    )
    running = serve(f"made:{call}", cwd=here)
    assert get(running.url) == shown
    assert f"\nserving made:{call}\n" in running.stderr


def test_arguments_of_a_factory_that_cannot_be_are_told(write: Write, here: Path) -> None:
    write(made="def make(name):\n    return None\n")
    assert not_loaded("made:make(prod)", cwd=here) == (
        "'made:make(prod)': prod is not a literal, and arguments of a factory are: strings, numbers, True, None, "
        "lists; did you mean 'prod' in quotes?"
    )
    assert "os.environ is not a literal" in not_loaded("made:make(os.environ)", cwd=here)
    assert "this is not a call of a factory" in not_loaded("made:make('a'", cwd=here)
    assert "** is not possible here" in not_loaded("made:make(**{'a': 1})", cwd=here)
    assert "cannot be called so: make() takes 1 positional" in not_loaded("made:make('a', 'b')", cwd=here)


@pytest.mark.parametrize("target", ["hello:", "hello:a-b", "he llo", ":app", "hello:app:app", "hello:make(1"])
def test_a_name_that_is_none(target: str, write: Write, here: Path) -> None:
    write(hello=APP)
    assert repr(target) in not_loaded(target, cwd=here)


def failed(target: str, *args: str, cwd: Path) -> tuple[str, str]:
    """Traceback and last line of a command whose application raised; nothing in the former is ours or importlib's."""
    done = run(target, *args, cwd=cwd, env=ANY_PORT)
    assert (done.returncode, done.stdout) == (3, "")
    trace, _, line = without_version(done.stderr).rstrip("\n").rpartition("\n")
    assert line.startswith("kirsch: ")
    for file in re.findall(r'File "([^"]+)"', trace):
        assert file.startswith(str(cwd)), file
    return trace, line.removeprefix("kirsch: ")


def test_a_module_that_raises_shows_its_own_traceback(write: Write, here: Path) -> None:
    write(outer="import inner\n", inner="def go():\n    return {}['gone']\ngo()\n")
    trace, line = failed("outer:app", cwd=here)
    assert trace.startswith("Traceback (most recent call last):\n")
    assert re.findall(r'File ".*/(\w+)\.py", line (\d+)', trace) == [("outer", "1"), ("inner", "3"), ("inner", "2")]
    assert trace.endswith("KeyError: 'gone'")
    assert line == "outer could not be imported: it raised KeyError"


def test_a_module_that_misses_another_is_not_taken_for_missing(write: Write, here: Path) -> None:
    write(outer="import not_there_at_all\n")
    trace, line = failed("outer", cwd=here)
    assert trace.endswith("ModuleNotFoundError: No module named 'not_there_at_all'")
    assert line == "outer could not be imported: No module named 'not_there_at_all'"


def test_a_module_with_a_syntax_error_shows_where(write: Write, here: Path) -> None:
    write(broken="x = 1\ndef f(:\n    pass\n")
    trace, line = failed("broken:app", cwd=here)
    assert 'broken.py", line 2' in trace
    assert line == "broken could not be imported: it raised SyntaxError"


def test_a_module_that_exits(write: Write, here: Path) -> None:
    write(leaving="import sys\nsys.exit(5)\n")
    _, line = failed("leaving", cwd=here)
    assert line == "leaving ended the program while it was imported: it raised SystemExit(5)"


def test_a_missing_attribute_suggests_what_there_is(write: Write, here: Path) -> None:
    write(hello=APP, other="import json\nfrom os.path import join\ndef serve_me(environ, start_response): ...\nx = 1\n")
    assert not_loaded("hello:ap", cwd=here) == "hello has no 'ap'; did you mean hello:app?"
    assert not_loaded("hello:app.inner", cwd=here) == "hello:app has no 'inner'"
    assert not_loaded("other", cwd=here) == (
        "other has neither 'app' nor 'application' nor 'create_app' nor 'make_app'; what can be called there: serve_me"
    )
    assert not_loaded("other", "--factory", cwd=here).startswith("other has neither 'create_app' nor 'make_app'")


def test_what_cannot_be_called(write: Write, here: Path) -> None:
    write(hello=APP + "number = 7\nnothing = None\ndef make():\n    return None\n")
    assert not_loaded("hello:number", cwd=here).startswith(
        "hello:number is an int, and an application is something that"
    )
    assert not_loaded("hello:nothing", cwd=here).startswith("hello:nothing is None")
    assert not_loaded("hello:make()", cwd=here).startswith("hello:make() returned None")
    assert not_loaded("hello:number()", cwd=here) == "hello:number is an int and not a factory: it cannot be called"


@pytest.mark.parametrize("name", ["generator", "double"])
def test_what_asgi_3_cannot_call_is_refused(name: str, write: Write, here: Path) -> None:
    write(
        other="""
        async def generator(scope, receive, send): yield
        def double(scope): ...
        """
    )
    assert not_loaded(f"other:{name}", cwd=here).startswith(
        f"other:{name} looks like an ASGI application, and cannot be called as ASGI 3 does it"
    )


@pytest.mark.parametrize("name", ["Class", "instance", "Inner.call", "partial", "loose", "decorated"])
def test_wsgi_in_every_shape_is_not_not_loaded(name: str, write: Write, here: Path) -> None:
    write(
        shapes="""
        import functools

        class Class:
            def __init__(self, environ, start_response): ...
            def __iter__(self): ...

        class Callable:
            def __call__(self, environ, start_response): ...
        instance = Callable()

        class Inner:
            @staticmethod
            def call(environ, start_response): ...

        def wide(scope, environ, start_response): ...
        partial = functools.partial(wide, 1)
        def loose(*args): ...

        @functools.lru_cache
        def decorated(environ, start_response): ...
        """
    )
    assert run("--check-config", f"shapes:{name}", cwd=here).stdout == f"shapes:{name} is ok\n"


def test_a_package_of_django_is_answered_with_its_module(here: Path) -> None:
    (here / "mysite").mkdir()
    for name in ("__init__", "settings", "asgi", "wsgi"):
        (here / "mysite" / f"{name}.py").touch()
    assert not_loaded("mysite", cwd=here).endswith("; did you mean mysite.wsgi?")


def test_an_application_of_another_kind_of_server(write: Write, here: Path) -> None:
    write(
        tornado="class Application:\n    def __call__(self, request): ...",
        page="import tornado\napp = tornado.Application()",
    )
    assert not_loaded("page:app", cwd=here) == (
        "page:app is an application of tornado, which is neither WSGI nor ASGI; tornado serves it by itself"
    )


def test_factories_that_do_not_make(write: Write, here: Path) -> None:
    write(
        made="""
        def picky(config): ...
        def broken():
            return len(None)
        async def later(): ...
        def make(): ...
        """
    )
    assert "is called without arguments, and needs some" in not_loaded("made:picky()", cwd=here)
    assert "made:later is a coroutine function" in not_loaded("made:later()", cwd=here)
    assert not_loaded("made:make", cwd=here) == (
        "made:make takes no arguments, so it is no application; if it makes one, write made:make()"
    )
    trace, line = failed("made:broken", "--factory", cwd=here)
    assert "in broken" in trace
    assert line == "the factory made:broken raised TypeError"
