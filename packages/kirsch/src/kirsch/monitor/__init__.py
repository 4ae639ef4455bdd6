"""What a running server shows of itself: the counters of all workers in shared memory (``scoreboard``), the requests
that run now (``running_requests``), are slow (``slow_requests``) or late (``deadlines``), and the pages of the metrics
process (``status_page``, ``metrics``)."""
