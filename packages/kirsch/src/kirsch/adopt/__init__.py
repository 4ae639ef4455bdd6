"""``kirsch adopt``: take over the configuration of another server, and compare both servers.

``command`` is the command line; ``readers`` finds the command that starts the old server in a Procfile, Dockerfile,
systemd unit and so on; ``shell`` parses such a command; ``gunicorn_file``, ``uwsgi_file``, ``uvicorn_call`` and
``apache`` read the configuration files of servers; ``adoption`` collects settings with their origins; ``writing``
writes kirsch.toml, and undoes that; ``compare`` sends the requests of ``replay`` to both servers.
"""
