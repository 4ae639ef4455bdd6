"""Commands of other servers beside Kirsch's, for the form of the documentation site and for ``kirsch adopt``.

A command of another server, and Kirsch's; then parts of what is said about options that need a reader's thought. A
sentence in place of a command says why there is none.
"""

from __future__ import annotations

COMMANDS: dict[str, str | tuple[str, ...]] = {
    "gunicorn -w 4 -k gthread --threads 8 -b 0.0.0.0:8000 -t 30 --access-logfile - shop.wsgi": (
        "kirsch -w 4 -k gthread --threads 8 -b 0.0.0.0:8000 -t 30 --access-logfile - shop.wsgi"
    ),
    "gunicorn -w4 --bind=unix:/run/a.sock --certfile x.pem --preload -k uvicorn.workers.UvicornWorker shop:app": (
        "kirsch -w 4 --bind unix:/run/a.sock --certfile x.pem --preload shop:app",
        "-k uvicorn.workers.UvicornWorker|left out|an ASGI application is always served by asyncio",
    ),
    "gunicorn -k sync \"shop:create_app('x')\" --bogus": (
        "kirsch --threads 1 'shop:create_app('\\''x'\\'')'",
        "--bogus|left out|no option of that server is called so",
    ),
    "gunicorn shop:app": ("kirsch shop:app", "|look|gunicorn runs one request at a time in each worker"),
    "uvicorn main:app --host 0.0.0.0 --port $PORT --workers 4 --proxy-headers --forwarded-allow-ips '*' --reload": (
        "kirsch --bind \"0.0.0.0:$PORT\" --workers 4 --forwarded-allow-ips '*' --reload main:app"
    ),
    "PYTHONPATH='a b' python -m uvicorn --factory main:make --timeout-keep-alive 5 # as before": (
        "PYTHONPATH='a b' python -m kirsch --factory --keep-alive 5 main:make"
    ),
    "granian --interface asgi --host :: --http1-header-read-timeout 30000 --workers-max-rss 9 --access-log main:app": (
        "kirsch --bind '[::]:8000' --interface asgi --header-timeout 30000ms --max-memory 9MiB --access-logfile - "
        "main:app"
    ),
    "hypercorn -b 0.0.0.0:8000 -k uvloop -w 2 --access-logfile - main:app": (
        "kirsch -b 0.0.0.0:8000 --loop uvloop -w 2 --access-logfile - main:app"
    ),
    "uwsgi --http :8000 --master -p 4 --threads 2 --wsgi-file app.py --callable app --harakiri 30 --vacuum \\\n"
    " --static-map /static=/srv/static": (
        "kirsch --bind 0.0.0.0:8000 --workers 4 --threads 2 --timeout 30 --static /static=/srv/static app.py:app",
        "--master|left out|there is always a supervisor",
        "--static-map /static=/srv/static|--static /static=/srv/static|",
    ),
    "uwsgi --socket /run/x.sock --chmod-socket=660 --module shop.wsgi --max-requests 1000": (
        "kirsch --bind 'uwsgi:unix:/run/x.sock?mode=660' --max-requests 1000 shop.wsgi"
    ),
    "mod_wsgi-express start-server shop.wsgi --port 8080 --processes 4 --threads 5 --user www --log-to-terminal": (
        "kirsch --bind 127.0.0.1:8080 --workers 4 --threads 5 --user www ./shop.py",
        "shop.wsgi|look|Kirsch serves files whose names end in .py",
    ),
    "ExecStart=/srv/venv/bin/waitress-serve --listen=*:8041 --call shop:create_app": (
        "/srv/venv/bin/kirsch --bind 0.0.0.0:8041 --factory shop:create_app"
    ),
    "waitress-serve shop:app": "kirsch --bind 0.0.0.0:8080 shop:app",
    "python manage.py runserver": "The command names none of gunicorn",
    "gunicorn --bind": "--bind has no value.",
    "gunicorn 'shop:app": "A quotation mark ' has no second one.",
}
