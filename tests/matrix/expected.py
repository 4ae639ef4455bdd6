"""Cells of the matrix that fail under Kirsch, each with the reason."""

from __future__ import annotations

_ALL = ("threads", "one thread", "gevent", "asyncio")
_WSGI = ("threads", "one thread", "gevent")


def _cells(table: dict[tuple[str, ...], dict[str, str]]) -> dict[tuple[str, str], str]:
    return {
        (driver, f"{name}"): reason
        for drivers, names in table.items()
        for text, reason in names.items()
        for name in text.split()
        for driver in drivers
    }


_STOP = "the worker cannot stop in order with these functions replaced: it ends with status 1, or is killed"

EXPECTED = _cells({
    _ALL: {
        "patches-broken_builtins_isinstance_type_getattr_repr_str": _STOP,
        "patches-broken_builtins___import patches-modules_are_none": _STOP,
        "descriptors-listener_blocking": "O_NONBLOCK belongs to the socket that all workers share: each of them waits "
        "in accept() for the next client, and cannot be stopped meanwhile",
    },
    ("asyncio",): {
        "loop-task_factory_raises loop-task_factory_returns_none loop-call_soon_broken": _STOP,
        "loop-selector_closed loop-time_broken": _STOP,
    },
})  # fmt: skip
"""The reason by driver and behaviour. A cell that passes must not be here."""

_DAEMON = "a thread that a daemon thread starts is one itself: the exit does not wait for it, and nothing names it"
_POOL = "Pool and Manager of multiprocessing hang or fail in a process that gevent has patched, also without a server"
_RACE = "the worker notices the loss only at its next use; if that is the stop, it ends with status 1 while it stops"

VARIES = _cells({
    _ALL: {
        "logs-stderr_raises logs-stderr_without_write": "the interpreter cannot flush sys.stderr: status 120",
        "signals-handler_raises": "the timer kills the process once the interpreter has restored the signals",
        "descriptors-close_event_counters descriptors-close_listeners descriptors-close_pipes": _RACE,
        "descriptors-close_unix_sockets descriptors-close_pollers descriptors-closerange": _RACE,
        "descriptors-closerange_and_open descriptors-dup2_over_all descriptors-empty_pollers": _RACE,
        "threads-async_exception_in_all patches-broken_signal_signal_getsignal_set_wakeup_fd": _RACE,
        "patches-broken_builtins_len patches-broken_time_sleep_time_monotonic_perf_counter": _RACE,
        "patches-broken_threading_current_thread_enumerate_get_ident patches-modules_cleared": _RACE,
        "exceptions-KeyboardInterrupt_in_a_task loop-callback_interrupts loop-pollers_emptied": _RACE,
        "gil-held_for_ever gil-sleeps_for_ever loop-waits_and_swallows_cancel": "a call that does not end after its "
        "deadline ends its worker with status 1 if the server is stopped before the worker has been replaced",
    },
    ("threads", "gevent"): {"threads-left_behind": _DAEMON},
    ("gevent",): {
        "threads-dead_thread_holds_stderr": "the write blocks the hub: a call that does not end",
        "multiprocessing-pool_maps multiprocessing-pool_left multiprocessing-pool_child_dies": _POOL,
        "multiprocessing-pool_terminated multiprocessing-manager multiprocessing-queue_left_full": _POOL,
    },
    _WSGI: {"import-interrupts": "a KeyboardInterrupt during the import ends a worker with status 130, unnamed"},
})  # fmt: skip
"""The same for cells whose outcome depends on which event comes first. They may pass."""
