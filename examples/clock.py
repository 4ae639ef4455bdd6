"""Server-sent events in plain ASGI, without a framework: ``kirsch clock:app``, from this folder, then open
http://127.0.0.1:8000/ in a browser, or ``curl -N http://127.0.0.1:8000/events``.

Each open page is one task that sleeps, so one worker holds thousands of them.
"""

import asyncio
import time

PAGE = b"""<!doctype html>
<title>Clock</title>
<h1>...</h1>
<script>
new EventSource("/events").onmessage = (event) => document.querySelector("h1").textContent = event.data;
</script>
"""


async def app(scope, receive, send):
    # The scope says what is asked for: here http, and lifespan once at the start, which this application does without.
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    if scope["path"] == "/events":
        await events(receive, send)
    elif scope["path"] == "/":
        await respond(send, 200, b"text/html; charset=utf-8", PAGE)
    else:
        await respond(send, 404, b"text/plain; charset=utf-8", b"There is no such page.\n")


async def respond(send, status, kind, body):
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


async def events(receive, send):
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    print("a page is open", flush=True)
    # The next line returns when the client has left: until then nothing is received after the request's (empty) body.
    left = asyncio.create_task(wait_for_disconnect(receive))
    try:
        while not left.done():
            data = time.strftime("%H:%M:%S").encode()
            # `send` waits while the client takes nothing, and raises an OSError if it has left.
            await send({"type": "http.response.body", "body": b"data: %s\n\n" % data, "more_body": True})
            await asyncio.wait({left}, timeout=1)
    except OSError:
        pass
    finally:
        left.cancel()
        print("a page is closed", flush=True)


async def wait_for_disconnect(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
