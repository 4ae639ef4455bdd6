"""A chat in Django Channels: rooms over the channel layer, a session that a page has set, a synchronous consumer."""

from __future__ import annotations

from typing import Any

import django
from channels.generic.http import AsyncHttpConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer, WebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import SessionMiddlewareStack
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="a key for tests alone",
    INSTALLED_APPS=["channels"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
)
django.setup()


class Room(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    async def connect(self) -> None:
        name = self.scope["url_route"]["kwargs"]["name"]
        if name == "closed":
            await self.close()
            return
        self.group = f"room_{name}"
        self.user = self.scope["session"].get("user", "nobody")
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        await self.tell("joined")

    async def tell(self, text: str) -> None:
        await self.channel_layer.group_send(self.group, {"type": "room.said", "user": self.user, "text": text})

    async def receive_json(self, content: Any) -> None:
        await self.tell(content["text"])

    async def room_said(self, event: dict[str, Any]) -> None:
        await self.send_json({"user": event["user"], "text": event["text"]})

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "group"):
            await self.channel_layer.group_discard(self.group, self.channel_name)
            await self.tell(f"left with {code}")


class Echo(WebsocketConsumer):  # type: ignore[misc]
    """Its methods run in threads."""

    def connect(self) -> None:
        self.accept()

    def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data == "close":
            self.close(code=4000)
        elif bytes_data is not None:
            self.send(bytes_data=bytes_data[::-1])
        else:
            self.send(text_data=str(text_data).upper())


class Lines(AsyncHttpConsumer):  # type: ignore[misc]
    async def handle(self, body: bytes) -> None:
        await self.send_headers(headers=[(b"Content-Type", b"text/plain")])
        for number in range(3):
            await self.send_body(b"%d of %d\n" % (number, len(body)), more_body=True)
        await self.send_body(b"")


def sign_in(request: HttpRequest, user: str) -> HttpResponse:
    request.session["user"] = user
    return HttpResponse(f"hello {user}")


urlpatterns = [path("sign-in/<str:user>", sign_in)]

app = ProtocolTypeRouter(
    {
        "http": URLRouter([path("lines", Lines.as_asgi()), path("<path:rest>", get_asgi_application())]),
        "websocket": OriginValidator(
            SessionMiddlewareStack(
                URLRouter([path("rooms/<str:name>", Room.as_asgi()), path("echo", Echo.as_asgi())]),
            ),
            ["https://chat.example.org"],
        ),
    }
)
