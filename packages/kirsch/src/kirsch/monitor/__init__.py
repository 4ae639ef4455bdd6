"""The state of a running server, for people and programs: counters of all workers (``scoreboard``), running requests
(``running_requests``), slow requests (``slow_requests``), missed deadlines (``deadlines``), and the pages of the
metrics process (``status_page``, ``metrics``)."""
