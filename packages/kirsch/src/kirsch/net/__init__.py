"""Sockets: those that the server listens on (``sockets``, ``inherited``), and one that an application has taken over
from the server (``client_socket``)."""
