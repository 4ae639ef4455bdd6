"""Sockets: those that the server listens on (``addresses``, ``sockets``, ``inherited``), and the socket of a connection
that the application has taken over (``client_socket``)."""
