"""The state of a running server, for people and programs: the counters of all workers (``scoreboard``), the requests
that run (``running_requests``), are slow (``slow_requests``) or late (``deadlines``), and the pages of the metrics
process (``status_page``, ``metrics``)."""
