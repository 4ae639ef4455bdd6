"""The parent process: it holds the listening sockets, starts workers, and replaces them without dropping a request.

The supervisor never reads from a client and never imports the application. It has one thread, so it may fork at any
time; it waits in one place, for signals, for messages of its children, and for moments of CLOCK_MONOTONIC.

Read from here::

    supervisor.py   the loop, and what each event leads to
    service.py      what all rooms share: who serves, what is wanted, how far the end has got
    worker_plan.py         the workers: which there are, which are missing, which is replaced next
    worker_manager.py    single workers: how one is started, what it says, what it is late with, how it ends
    zygote_pool.py      the zygotes of --preload, as the supervisor sees them
    reload_manager.py    a reload: a trial that changes nothing, and then the replacement of all workers
    autoscaler.py      how much the workers have to do: more of them, fewer, or none; activity.py counts it
    reload_triggers.py      files that call for a reload; inotify.py and watching.py are what watches them
    upgrade_manager.py    SIGUSR2, from the signal to the exec; upgrade.py is how that is done
    metrics_manager.py   the child behind --metrics-bind, as the supervisor sees it
    resources.py     what is held for workers: sockets, logs, the pid file
    backoff.py, scaling_policy.py   when to start another, and how many there should be: without clock or process
    control.py      the channel between the supervisor and one child, and what is said on it
    forking.py      how a child leaves the stack of its parent
    event_loop.py, signal_pipe.py    the one place where it waits; signals as events
    system.py       what the kernel is asked about children

    worker_process.py       a child that serves
    control_thread.py    what a worker notices about itself, in a thread of its own
    running_requests.py      what runs in it, on the scoreboard, while somebody looks
    readiness.py    a worker asks its application whether it is ready
    zygote_process.py       a child that has imported the application, and forks workers

    metrics_process.py   a child that serves what is on the scoreboard: metrics.py for Prometheus, status_page.py for people

    notify.py, pid_file.py, privileges.py, titles.py: for what their names say
"""
