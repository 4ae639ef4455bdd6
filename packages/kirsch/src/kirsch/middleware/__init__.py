"""WSGI middleware. Each is a module of its own, for any WSGI server; nothing of Kirsch's imports them."""
