"""The adapter that starts and stops an HTTP server with the bus."""

from __future__ import annotations

import threading
from typing import Any


class ServerAdapter:
    """Starts ``httpserver`` in a new thread when the bus starts, and stops it when the bus stops."""

    bind_addr: Any = None
    interrupt: BaseException | None = None
    running = False
    _thread: Any = None

    def __init__(self, bus: Any, httpserver: Any = None, bind_addr: Any = None) -> None:
        self.bus, self.httpserver = bus, httpserver
        if bind_addr is not None:
            self.bind_addr = bind_addr

    def subscribe(self) -> None:
        """Subscribe to the channels ``start`` and ``stop`` of the bus."""
        self.bus.subscribe("start", self.start, 75)
        self.bus.subscribe("stop", self.stop, 25)

    def unsubscribe(self) -> None:
        """Unsubscribe from the bus."""
        self.bus.unsubscribe("start", self.start)
        self.bus.unsubscribe("stop", self.stop)

    @property
    def description(self) -> str:
        """The address of the server, for log messages."""
        address = getattr(self.httpserver, "bound_addr", None) or self.bind_addr
        return f"http://{address[0]}:{address[1]}" if isinstance(address, tuple) else f"socket file: {address}"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        if self.running:
            self.bus.log(f"Already serving on {self.description}")
            return
        server, self.interrupt = self.httpserver, None
        if not server:
            raise ValueError("there is no HTTP server to start")
        serve = server.start
        if hasattr(server, "prepare"):
            server.prepare()  # bind in the caller's thread, which receives the exception
            serve = server.serve
        self._thread = threading.Thread(target=self._serve, args=(serve,), name=f"HTTPServer {type(server).__name__}")
        self._thread.start()
        self.wait()
        self.running = True
        self.bus.log(f"Serving on {self.description}")

    def _serve(self, serve: Any) -> None:
        try:
            serve()
        except KeyboardInterrupt:
            self.bus.log("Ctrl-C: the HTTP server stops")
            self.bus.exit()
        except BaseException as error:
            self.interrupt = error
            self.bus.log("The HTTP server failed and stops", traceback=True, level=40)
            self.bus.exit()
            raise

    def wait(self) -> None:
        """Wait until the server is ready. Raise its exception if it failed."""
        while not (self.interrupt or getattr(self.httpserver, "ready", True)):
            self._thread.join(0.01)
        if self.interrupt:
            raise self.interrupt

    def stop(self) -> None:
        """Stop the server, and wait until its thread has ended."""
        if self.running:
            self.httpserver.stop()
            if self._thread is not threading.current_thread():
                self._thread.join()
            self.running = False
            self.bus.log("HTTP Server shut down")

    def restart(self) -> None:
        """Stop the server, and start it again."""
        self.stop()
        self.start()
