"""The parent process: it holds the listening sockets, starts workers, and replaces them without dropping a request.

The supervisor never reads from a client and never imports the application. It has one thread, so it may fork at any
time. It waits in one place: for signals, for messages of its children, and for timers of CLOCK_MONOTONIC.

Start reading here::

    supervisor.py        the event loop, and the effect of each event
    service.py           the state that all parts share: the workers, what is wanted, how far a stop has got
    worker_plan.py       the records of the workers; decides which to start, replace and stop next
    worker_manager.py    starts single workers, reads their messages, watches their deadlines, handles their exit
    zygote_pool.py       the supervisor's side of the zygotes of --preload
    reload_manager.py    a reload: a trial that changes nothing, and then the replacement of all workers
    autoscaler.py        more workers, fewer, or none, by their load (activity.py); scaling_policy.py decides
    reload_triggers.py   files whose change starts a reload, watched by inotify.py or watching.py
    upgrade_manager.py   SIGUSR2, from the signal to the exec; upgrade.py is the mechanism
    metrics_manager.py   starts and stops the metrics process of --metrics-bind
    resources.py         what the supervisor holds for its workers: sockets, logs, the pid file
    backoff.py           when to start another worker or zygote after failures
    engine_group.py      what the workers share to balance new connections
    control.py           the channel between the supervisor and one child, and its messages
    forking.py           how a child leaves the stack of its parent
    event_loop.py        the one place where the supervisor waits; signal_pipe.py makes signals events of it
    system.py            what the kernel is asked about children

    worker_process.py    the worker process
    control_thread.py    the thread of a worker that reads the channel, and watches limits and memory
    process_exit.py      the end of a process in time, whatever the application has left behind
    request_publisher.py the running requests of a worker, published on the scoreboard on demand
    readiness.py         the request of --ready-path, before a worker reports that it is ready
    zygote_process.py    the zygote: a child that has imported the application, and forks workers

    metrics_process.py   the metrics process, which serves the pages of kirsch.monitor.status_page

    notify.py, pid_file.py, privileges.py, titles.py: what their names say
"""
