"""The state of a running server, for people and programs: counters of all workers in shared memory (``scoreboard``), the
requests that run (``running_requests``), are slow (``slow_requests``) or late (``deadlines``), and the pages of the
metrics process (``status_page``, ``metrics``)."""
