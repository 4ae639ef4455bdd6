"""The tracer: it records the call tree of one request, with the number and duration of calls. It uses
``sys.setprofile``, which calls back at each call and return in one thread, instead of cProfile: since CPython 3.12 a
process can have only one cProfile, which attributes the calls of *all* threads to the thread that started it. In a
server with threads, the profile of one request would contain other requests, and a second concurrent profile would
raise an exception. ``sys.setprofile`` is limited to its thread on every version. It costs more per call (two
microseconds instead of some tenths). The time spent in this module is subtracted from the times; the rest, about half a
microsecond, makes small, frequent functions look more expensive than they are. A tracer records one request, in the
thread or greenlet in which it is started, between start and stop, which may be repeated. Work that the request gives to
other threads is not recorded. *Recursion* is folded: a recursive call is counted in the existing node of the function,
so that the tree is never deeper than the number of functions, and no time counts twice. Resuming a *generator* counts
as a call, as in cProfile. Times are nanoseconds of ``time.perf_counter_ns``, including waiting.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kirsch.process.real_threads import original

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    # The code of a Python function; the owner and the name of a C function; None for the root.
    Key = CodeType | tuple[Any, str] | None
    Callback = Callable[[FrameType, str, Any], None]


class BusyError(RuntimeError):
    """Raised if another profiler is active in this thread."""


class Function(NamedTuple):
    """A function that was called. A C function has no file, and line 0."""

    file: str
    line: int
    name: str
    """As pstats has it: ``get``, or ``<method 'append' of 'list' objects>``."""
    qualified: str
    """For people: ``Store.get``."""

    @property
    def is_python(self) -> bool:
        """Return whether it is a Python function."""
        return self.line > 0


class Node:
    """A node of the call tree: a function as called by its parent node."""

    __slots__ = ("active", "calls", "children", "entered", "folded", "key", "own", "parent", "total")

    def __init__(self, key: Key, parent: Node | None) -> None:
        self.key = key
        self.parent = parent
        self.calls = 0
        self.own = 0
        """In it and not below it."""
        self.total = 0
        """In it and below it."""
        self.children: dict[Key, Node] = {}
        """The nodes that this node calls. A node above it may be among them: that is recursion."""
        self.folded: dict[Node, int] = {}
        """The nodes above it that it calls, and how often."""
        self.active = 0
        self.entered = 0

    def callees(self) -> Iterator[Node]:
        """Return the nodes that this node calls, in the order of their first calls, without recursive ones."""
        return (child for child in self.children.values() if child.parent is self)

    def function(self) -> Function:
        """Return the function of this node."""
        return describe(self.key)

    def child(self, key: Key) -> Node:
        """Return the node for a call of ``key`` from this node; create it at the first call."""
        node: Node | None = self
        while node is not None and node.key != key:
            node = node.parent
        if node is None:
            node = Node(key, self)
        self.children[key] = node
        return node


def describe(key: Key) -> Function:
    """Return the function for the key of a node."""
    if isinstance(key, CodeType):
        return Function(key.co_filename, key.co_firstlineno, key.co_name, getattr(key, "co_qualname", key.co_name))
    if key is None:
        return Function("", 0, "<request>", "<request>")
    owner, name = key
    if isinstance(owner, ModuleType):
        module = getattr(owner, "__name__", "?")
        shown = name if module == "builtins" else f"{module}.{name}"
        return Function("~", 0, f"<built-in method {module}.{name}>", shown)
    kind = getattr(owner, "__name__", "?")
    return Function("~", 0, f"<method '{name}' of '{kind}' objects>", f"{kind}.{name}")


def is_free() -> bool:
    """Return whether a tracer can be started here: no other profiler is active in this thread, and no tracer in this
    thread or greenlet."""
    greenlet = sys.modules.get("greenlet")
    if greenlet is None:
        return sys.getprofile() is None
    return _Greenlets.of_this_thread(greenlet.getcurrent).has_room(greenlet.getcurrent())


class Tracer:
    """A tracer. Code between ``start()`` and ``stop()`` is traced, in one thread or greenlet at a time."""

    def __init__(self) -> None:
        self.root = Node(None, None)
        self._stack = [self.root]
        self._callback, self._resume = _follow(self._stack)
        self._greenlet: Any = None

    def start(self) -> None:
        """Trace the calls of this thread or greenlet from now on. Raises BusyError."""
        greenlet = sys.modules.get("greenlet")
        if greenlet is None:
            if sys.getprofile() is not None:
                raise BusyError("another profiler is at work in this thread")
            self._resume()
            sys.setprofile(self._callback)
        else:
            # All greenlets of a thread share one callback.
            current = greenlet.getcurrent()
            greenlets = _Greenlets.of_this_thread(greenlet.getcurrent)
            self._resume()
            greenlets.follow(current, self._callback)
            self._greenlet = current

    def stop(self) -> None:
        """Stop tracing. The tracer may be started again."""
        if self._greenlet is None:
            if sys.getprofile() is self._callback:  # otherwise the traced code has set its own
                sys.setprofile(None)
        else:
            _Greenlets.leave(self._greenlet)
            self._greenlet = None
        self._clean()

    def _clean(self) -> None:
        """Close the calls whose end was not reported, for example after an exception. Remove calls of this module."""
        while len(self._stack) > 1:
            _leave(self._stack)
        for key in list(self.root.children):
            if key in _OURS:
                del self.root.children[key]

    @property
    def total(self) -> int:
        """The nanoseconds that were traced."""
        return sum(node.total for node in self.root.callees())


def _leave(stack: list[Node]) -> None:
    node = stack.pop()
    node.active -= 1
    if not node.active:
        # A call that is still open at the end is as long as its parts.
        node.total = max(node.total, node.own + sum(child.total for child in node.callees()))


def _follow(stack: list[Node]) -> tuple[Callback, Callable[[], None]]:  # one loop, inlined for speed
    """Return the callback that maintains ``stack``, whose first entry is the root, and a function to call before it
    is set."""
    clock = perf_counter_ns
    module = ModuleType
    last = 0  # the time of the last return from the callback
    elapsed = 0  # the elapsed time, without the time inside the callback

    def callback(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal last, elapsed
        spent = clock() - last
        elapsed += spent
        top = stack[-1]
        top.own += spent
        key: Key
        if event == "call" or event == "c_call":  # faster than a test with a tuple
            if event == "call":
                key = frame.f_code
            else:
                owner = getattr(argument, "__self__", None)
                kind = type(owner)
                key = (owner if kind is module or kind is type else kind, argument.__name__)
            node = top.children.get(key) or top.child(key)
            if not node.active:
                node.entered = elapsed
            elif node.parent is not top:
                top.folded[node] = top.folded.get(node, 0) + 1
            node.active += 1
            node.calls += 1
            stack.append(node)
        else:
            if event == "return":
                code = frame.f_code
                # Also handles the end of a call that began before the tracer. Calls above it on the stack have ended
                # without an event.
                found = top.key is code or any(node.key is code for node in stack)
                while found and top.key is not code:
                    pop()
                    top = stack[-1]
            else:
                found = type(top.key) is tuple
            if found:
                pop()
        last = clock()

    def pop() -> None:
        node = stack.pop()
        node.active -= 1
        if not node.active:
            node.total += elapsed - node.entered

    def resume() -> None:
        nonlocal last
        last = clock()

    return callback, resume


class _Greenlets:
    """The callback of a thread that runs several greenlets, each with its own tracer or none."""

    # By the thread's ident, because gevent makes threading.local local to a greenlet.
    _threads: ClassVar[dict[int, _Greenlets]] = {}

    def __init__(self, getcurrent: Callable[[], object]) -> None:
        self._followed: dict[object, Callback] = {}
        followed = self._followed.get

        def callback(frame: FrameType, event: str, argument: Any) -> None:
            if (follow := followed(getcurrent())) is not None:
                follow(frame, event, argument)

        self._callback = callback

    @classmethod
    def of_this_thread(cls, getcurrent: Callable[[], object]) -> _Greenlets:
        number = original("get_ident")()
        found = cls._threads.get(number)
        if found is None:
            found = cls._threads[number] = cls(getcurrent)
        return found

    def has_room(self, greenlet: object) -> bool:
        return greenlet not in self._followed and sys.getprofile() in (None, self._callback)

    def follow(self, greenlet: object, callback: Callback) -> None:
        if not self.has_room(greenlet):
            raise BusyError("another profiler is at work in this thread")
        self._followed[greenlet] = callback
        sys.setprofile(self._callback)

    @classmethod
    def leave(cls, greenlet: object) -> None:
        number = original("get_ident")()
        found = cls._threads[number]
        found._followed.pop(greenlet, None)
        if not found._followed:
            if sys.getprofile() is found._callback:
                sys.setprofile(None)
            del cls._threads[number]


# Functions of this package that are called before or after the application.
_OURS = {
    Tracer.start.__code__,
    Tracer.stop.__code__,
    _Greenlets.of_this_thread.__func__.__code__,  # type: ignore[attr-defined]
    _Greenlets.leave.__func__.__code__,  # type: ignore[attr-defined]
    original.__code__,
    (sys, "setprofile"),
    (sys, "getprofile"),
}
