"""The parent process: it holds the listening sockets, starts workers, and replaces them without dropping a request.

The supervisor never reads from a client and never imports the application. It has one thread, so it may fork at any
time; it waits in one place, for signals, for messages of its children, and for moments of CLOCK_MONOTONIC.

Read from here::

    supervisor.py   the loop, and what each event leads to
    crew.py         the workers: which there are, which are missing, which is replaced next
    holdings.py     what is held for them: sockets, logs, the scoreboard, the pid file
    nursery.py      the zygotes of --preload, as the supervisor sees them
    activity.py     what the workers do together, from the scoreboard
    backoff.py, scaling.py   when to start another, and how many there should be: pure functions
    control.py      the channel between the supervisor and one child, and what is said on it
    forking.py      how a child leaves the stack of its parent
    wakeup.py, system.py     signals as events; what the kernel is asked about children
    upgrade.py      SIGUSR2: what is handed over an exec

    worker.py       a child that serves
    attendant.py    what a worker notices about itself, in a thread of its own
    showing.py      what runs in it, on the scoreboard, while somebody looks
    readiness.py    a worker asks its application whether it is ready
    zygote.py       a child that has imported the application, and forks workers

    metrics_child.py   a child that serves what is on the scoreboard: metrics.py for Prometheus, status.py for people

    notify.py, pid_file.py, privileges.py, titles.py, watching.py: for what their names say
"""
