"""``kirsch adopt``: take over the configuration of another server, and compare both servers.

``command`` is the command line; ``readers`` finds the command that starts the old server in a Procfile, Dockerfile,
systemd unit and so on; ``shell`` takes such a command apart; ``gunicorn_file``, ``uwsgi_file``, ``uvicorn_call`` and
``apache`` read what servers have besides; ``adoption`` collects settings with their origins; ``writing`` makes
kirsch.toml of them, and undoes it; ``compare`` sends the requests of ``replay`` to both servers.
"""
