"""A chat over WebSockets in plain ASGI: ``kirsch chat:app``, from this folder, then open http://127.0.0.1:8000/ in two
windows.

Each connection is one task that waits in ``receive``, so one worker holds tens of thousands. Workers share no memory:
with several of them, messages must go through a broker that all of them listen to, such as Redis.
"""

import asyncio

PAGE = b"""<!doctype html>
<title>Chat</title>
<form><input autofocus placeholder="Say something"></form>
<ul></ul>
<script>
const [form, input, list] = ["form", "input", "ul"].map((name) => document.querySelector(name));
const socket = new WebSocket(location.href.replace("http", "ws"));
socket.onmessage = (event) => list.appendChild(document.createElement("li")).textContent = event.data;
form.onsubmit = (event) => {
  event.preventDefault();
  socket.send(input.value);
  input.value = "";
};
</script>
"""

room = set()


async def chat(receive, send):
    await receive()  # websocket.connect; the headers, such as `origin` and `cookie`, are in the scope
    await send({"type": "websocket.accept"})
    # What is to be sent waits in a queue of its own, so a slow client holds up no other.
    queue = asyncio.Queue(maxsize=100)
    writer = asyncio.create_task(write(queue, send))
    room.add(queue)
    try:
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text"):
                tell_all(message["text"])
    finally:
        room.discard(queue)
        writer.cancel()


def tell_all(text):
    for queue in room:
        if not queue.full():  # a client that is a hundred messages behind misses this one
            queue.put_nowait(text)


async def write(queue, send):
    try:
        while True:
            await send({"type": "websocket.send", "text": await queue.get()})
    except OSError:
        pass  # the client has left, and `receive` says so


async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await chat(receive, send)
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": PAGE})
    else:
        raise NotImplementedError(scope["type"])  # there is nothing to do in the lifespan
