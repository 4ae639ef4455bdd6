"""A chat over WebSockets in plain WSGI: ``kirsch room:app``, from this folder, then open http://127.0.0.1:8000/ in two
windows.

A handler is called for each message, so 10,000 idle connections hold no thread. The group has a name, so with
``--workers 4`` it has the clients of all workers.
"""

from kirsch.websocket import Group, accept

PAGE = b"""<!doctype html>
<title>Room</title>
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


class Room:
    def __init__(self):
        self.group = Group("room")

    def open(self, ws):
        self.group.add(ws)

    def message(self, ws, data):
        if isinstance(data, str):
            # A client that is far behind misses this one.
            self.group.send_all(data)

    def close(self, ws, code):
        self.group.discard(ws)


room = Room()


def app(environ, start_response):
    if "wsgi.websocket" in environ:  # the headers, such as HTTP_ORIGIN and HTTP_COOKIE, are in the environ
        return accept(environ, room)(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(PAGE)))])
    return [PAGE]
