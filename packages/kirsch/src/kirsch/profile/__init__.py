"""Profiles of single requests: which calls an application makes, and how long they take.

``tracer`` follows calls, ``wsgi`` follows an application's request, ``stats`` keeps the calls in ``.prof`` files, which
``files`` names; ``tree``, ``show`` and ``page`` print them. :mod:`kirsch.middleware.profiler` is made of these, and so
is ``kirsch profile``, a command of the distribution kirsch-bench. Nothing of the server imports this package.
"""
