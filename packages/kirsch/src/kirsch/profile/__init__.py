"""Profiles of single requests: the calls of an application and their times. ``tracer`` records calls, ``wsgi`` and
``asgi`` run a request of an application under it, ``stats`` reads and writes ``.prof`` files, which ``files`` names;
``tree``, ``show`` and ``page`` format them. :mod:`kirsch.middleware.profiler` and ``kirsch profile`` (a command of the
distribution kirsch-bench) use them. The server does not import this package.
"""
