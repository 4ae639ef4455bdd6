"""The output of ``kirsch survey --example``: a file to begin with that names every key."""

from __future__ import annotations

TEXT = """\
# A survey: `kirsch survey survey.toml`. Lines that begin with # show what else there is, with its default.

[survey]
title = "Hello on four servers"
rounds = 5                  # each with a fresh process of every server, in an order of chance
seconds = 3                 # of load in each round, after the warm-up
# warmup = 1                # seconds that are not measured; an interpreter that compiles needs more
# cooldown = 0.5            # seconds between two rounds
# idle = 2                  # seconds for which each server is watched doing nothing, once
# patience = 60             # seconds in which a server has to give its first answer
# longest = 300             # seconds after which a load is ended whatever it does
# seed = 1                  # of the order and of all else that is left to chance
# null = true               # measure the generator's own limit beside the servers
# about = "Why this is measured, for a reader of the report."
# pythons = ["3.13", "pypy3"]           # versions, names or paths; the one that runs this
# processors = { server = [0], generator = [1] }        # or "auto"
# historical = "old.toml"   # tables of an earlier measurement, to be printed beside these results

# The requests. `load` holds flags of `kirsch bench`.

[[scenario]]
name = "browser"
title = "A browser's request, a connection for each"
load = "--headers chrome -c 32 --keep-alive off"
application = "hello"       # hello, large, stream, echo, sizer, slow; or yours, "module:app"
# path = "/"
# directory = "."           # where the module is, from this file on
# asgi = "module:app"       # the same application for servers of ASGI

[[scenario]]
name = "threads"
title = "Keep-alive"
load = "--headers ab"
connections = [10, 50]      # a series: one scenario for each number. Others are
                            # fields = [0, 10, 20, 30]: more header fields of a request, for a cost per field
                            # kib = [1, 100]: KiB of a body that is asked of the sizer, for a cost per KiB
                            # bytes = [10, 1000]: the same, in bytes

# The servers. `kirsch survey --list survey.toml` shows which can run here.

[[server]]
adapter = "kirsch"          # kirsch kirsch-gevent kirsch-asgi gunicorn gunicorn-gthread gunicorn-gevent uwsgi
                            # uwsgi-http11 granian granian-asgi bjoern fastpysgi cheroot cherrypy waitress gevent
                            # eventlet twisted twisted-resource tornado tornado-handler wsgiref uvicorn uvicorn-wsgi
                            # hypercorn hypercorn-wsgi mod_wsgi mod_php flup nginx-static apache-static
                            # and pairs such as kirsch-fastcgi+nginx. Behind: kirsch-http kirsch-http-closed
                            # kirsch-fastcgi kirsch-uwsgi kirsch-scgi flup-fastcgi flup-limited uwsgi-uwsgi
                            # gunicorn-http gunicorn-uwsgi php-fpm In front: nginx apache lighttpd caddy haproxy

[[server]]
adapter = "kirsch"
name = "kirsch-1"           # names are unique; the adapter's is the default
threads = 1
# workers = 1
# children = 30             # processes of Apache or of php-fpm, each of which serves one request at a time
# options = ["--limit", "1"]            # further arguments of its command
# environment = { NAME = "value" }
# only = ["browser"]        # scenarios; skip = ["threads"] is the opposite
# copies = 2                # as if it were two servers: what differs then is an error of measuring (an A/A survey)

[[server]]
adapter = "gunicorn"
# version = "23.0.0"        # the newest one
# requirements = ["setproctitle"]       # what pip installs beside it

[[server]]
adapter = "wsgiref"

# [[server]]
# adapter = "command"       # any server: the words in braces are filled in, and there are {python} {bin} {threads}
# name = "mine"             # {workers} {directory} too
# command = "{python} -m mine --listen {host}:{port} {app}"
# requirements = ["mine"]
"""
