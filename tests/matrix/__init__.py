"""Bad behaviours of applications, each tried under each driver of Kirsch and under other servers.

``table`` declares a behaviour. ``process``, ``interpreter`` and ``resources`` hold deeds that any call can do; ``wsgi``
and ``asgi`` are applications that do them, and what is particular to each interface. ``runner`` serves the applications
and examines the server; ``expected`` lists the cells that are known to fail. ``tests/test_matrix.py`` runs Kirsch,
``scripts/robustness.py`` any server.
"""
