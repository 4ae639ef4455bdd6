"""``kirsch profile``: where the time of one request goes, in the server and in the application.

``command`` serves an application with ``serving``, sends it the requests of ``requests``, and prints the ``results``
with ``report``. The calls are followed by :mod:`kirsch.profile`.
"""
