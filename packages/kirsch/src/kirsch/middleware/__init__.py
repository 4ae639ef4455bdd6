"""WSGI middleware. Each module works with any WSGI server, and Kirsch itself imports none of them."""
