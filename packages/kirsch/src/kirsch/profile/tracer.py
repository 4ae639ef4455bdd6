"""Which calls were made, below which, how often and for how long: the tree of one request's calls.

It rests on ``sys.setprofile``, which calls back at each call and return in one thread, and not on cProfile, for a
reason: since CPython 3.12 a process has one cProfile at a time, and it takes the calls of *all* threads for those of
the thread that started it. In a server with threads the profile of one request would be a mixture, and that of a second
one an exception. ``sys.setprofile`` stays within its thread on every version. It costs more for each call (two
microseconds against some tenths of one), of which the part that this module itself works is taken out of the times
again; what is left, a good half microsecond, makes small functions that are called often look more expensive than they
are.

A tracer follows one request: through the thread, or the greenlet, in which it is started, for as long as it is started,
and as often as that is. What the request hands to other threads is not followed.

*Recursion* is folded: a function that is called below itself goes on in the node that it has already, so that the tree
is never deeper than there are functions, and no time counts twice. A *generator* counts as called each time that it is
resumed, as in cProfile. Times are nanoseconds of ``time.perf_counter_ns``; waiting counts.
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

    # A function of Python by its code; one of C by where it is from, and its name.
    Key = CodeType | tuple[Any, str] | None
    Callback = Callable[[FrameType, str, Any], None]


class BusyError(RuntimeError):
    """Another profiler is at work in this thread."""


class Function(NamedTuple):
    """A function that was called. A function of C has no file, and line 0."""

    file: str
    line: int
    name: str
    """As pstats has it: ``get``, or ``<method 'append' of 'list' objects>``."""
    qualified: str
    """For people: ``Store.get``."""

    @property
    def is_python(self) -> bool:
        """Return whether it has a file."""
        return self.line > 0


class Node:
    """A function, called by the one above it."""

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
        """Return the nodes that this node calls, without those above it, in the order of their first calls."""
        return (child for child in self.children.values() if child.parent is self)

    def function(self) -> Function:
        """Return the function of this node."""
        return describe(self.key)

    def child(self, key: Key) -> Node:
        """Return the node for a call of ``key`` from here: made for the first one."""
        node: Node | None = self
        while node is not None and node.key != key:
            node = node.parent
        if node is None:
            node = Node(key, self)
        self.children[key] = node
        return node


def describe(key: Key) -> Function:
    """Return the function that a node's key denotes."""
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
    """Return whether a tracer can be started here: no other profiler runs in this thread, and none of ours in it, or
    in this greenlet."""
    greenlet = sys.modules.get("greenlet")
    if greenlet is None:
        return sys.getprofile() is None
    return _Greenlets.of_this_thread(greenlet.getcurrent).has_room(greenlet.getcurrent())


class Tracer:
    """``start()`` and ``stop()`` around whatever is to be followed, in one thread or greenlet at a time."""

    def __init__(self) -> None:
        self.root = Node(None, None)
        self._stack = [self.root]
        self._callback, self._resume = _follow(self._stack)
        self._greenlet: Any = None

    def start(self) -> None:
        """Follow the calls of this thread, or greenlet, from now on. Raises BusyError."""
        greenlet = sys.modules.get("greenlet")
        if greenlet is None:
            if sys.getprofile() is not None:
                raise BusyError("another profiler is at work in this thread")
            self._resume()
            sys.setprofile(self._callback)
        else:
            # A thread has one callback for all of its greenlets.
            current = greenlet.getcurrent()
            greenlets = _Greenlets.of_this_thread(greenlet.getcurrent)
            self._resume()
            greenlets.follow(current, self._callback)
            self._greenlet = current

    def stop(self) -> None:
        """Do so no more. It may be started again."""
        if self._greenlet is None:
            if sys.getprofile() is self._callback:  # otherwise what is followed has put its own there
                sys.setprofile(None)
        else:
            _Greenlets.leave(self._greenlet)
            self._greenlet = None
        self._clean()

    def _clean(self) -> None:
        """Close the calls that an exception left open, or whose end was not reported. Remove the calls of our own."""
        while len(self._stack) > 1:
            _leave(self._stack)
        for key in list(self.root.children):
            if key in _OURS:
                del self.root.children[key]

    @property
    def total(self) -> int:
        """Nanoseconds for which it has followed."""
        return sum(node.total for node in self.root.callees())


def _leave(stack: list[Node]) -> None:
    node = stack.pop()
    node.active -= 1
    if not node.active:
        # A call that is open at the end ends with the last of its parts.
        node.total = max(node.total, node.own + sum(child.total for child in node.callees()))


def _follow(stack: list[Node]) -> tuple[Callback, Callable[[], None]]:  # one loop, inlined for speed
    """The callback that keeps ``stack``, whose first is the root, and what is to be called before it is put to work."""
    clock = perf_counter_ns
    module = ModuleType
    last = 0  # when it was left last
    elapsed = 0  # without the time that is spent in here

    def callback(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal last, elapsed
        spent = clock() - last
        elapsed += spent
        top = stack[-1]
        top.own += spent
        key: Key
        if event == "call" or event == "c_call":  # a tuple would take longer
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
                # A call that began before the tracer ends here too. Calls above it on the stack ended without an event.
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
    """The callback of a thread in which greenlets take turns, each with a tracer of its own or none."""

    # By the system's number of the thread: gevent makes threading.local one of a greenlet.
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


# Our own functions that are called before or after the application.
_OURS = {
    Tracer.start.__code__,
    Tracer.stop.__code__,
    _Greenlets.of_this_thread.__func__.__code__,  # type: ignore[attr-defined]
    _Greenlets.leave.__func__.__code__,  # type: ignore[attr-defined]
    original.__code__,
    (sys, "setprofile"),
    (sys, "getprofile"),
}
