"""Sockets: listening sockets (``addresses``, ``sockets``, ``inherited``), and the socket of a connection that the
application has taken over (``client_socket``)."""
