"""The parent process: it holds the listening sockets, starts workers, and replaces them without dropping a request.

The supervisor never reads from a client and never imports the application. It has one thread, so it may fork at any
time. It waits in one place: for signals, for messages of its children, and for timers of CLOCK_MONOTONIC.

Start reading here::

    supervisor.py        the event loop, and the effect of each event
    service.py           the state that all parts share: the workers, the wanted state, the phase of a stop
    worker_plan.py       the records of the workers; decides which to start, replace and stop next
    worker_manager.py    starts single workers, reads their messages, watches their deadlines, handles their exit
    zygote_pool.py       the supervisor's side of the zygotes of --preload
    reload_manager.py    a reload: a trial without effect on the service, then the replacement of all workers
    autoscaler.py        more workers, fewer, or none, by their load (activity.py); scaling_policy.py decides
    reload_triggers.py   files whose change starts a reload, watched by inotify.py or watching.py
    upgrade_manager.py   SIGUSR2, from the signal to the exec; upgrade.py is the mechanism
    metrics_manager.py   starts and stops the metrics process of --metrics-bind
    resources.py         the resources for the workers: sockets, logs, the pid file
    backoff.py           when to start another worker or zygote after failures
    engine_group.py      shared memory and eventfds by which workers balance new connections
    control.py           the channel between the supervisor and one child, and its messages
    forking.py           how a child leaves the stack of its parent
    event_loop.py        the event loop of the supervisor; signal_pipe.py turns signals into events
    system.py            queries to the kernel about child processes

    worker_process.py    the worker process
    control_thread.py    the thread of a worker that reads the channel, and watches limits and memory
    process_exit.py      the exit of a process within a time limit, even if threads of the application block it
    request_publisher.py the running requests of a worker, published on the scoreboard on demand
    readiness.py         the request of --ready-path, before a worker reports that it is ready
    zygote_process.py    the zygote: a child that has imported the application, and forks workers

    metrics_process.py   the metrics process, which serves the pages of kirsch.monitor.status_page

    notify.py, pid_file.py, privileges.py, titles.py: what their names say
"""
