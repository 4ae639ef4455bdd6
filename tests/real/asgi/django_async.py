"""Django under ASGI with a database: async views, the ORM in threads, an async stream."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY="none",
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.gzip.GZipMiddleware"],
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}},
)
django.setup()
from django.contrib.auth.models import User  # noqa: E402

waiting: list[None] = []


async def add(request: HttpRequest) -> JsonResponse:
    user = await User.objects.acreate(username=request.GET["name"])
    return JsonResponse({"id": user.pk, "count": await User.objects.acount()})


def names(_request: HttpRequest) -> JsonResponse:
    # A sync view: Django runs it in a thread.
    return JsonResponse(sorted(User.objects.values_list("username", flat=True)), safe=False)


async def stream(_request: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[str]:
        async for user in User.objects.order_by("username"):
            yield f"{user.username}\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


async def wait(_request: HttpRequest) -> HttpResponse:
    """Waits until the client has left: Django cancels the view at http.disconnect."""
    await User.objects.acount()
    waiting.append(None)
    try:
        await asyncio.sleep(60)
    finally:
        waiting.pop()
    return HttpResponse("too late")


async def show_waiting(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(waiting)))


async def body(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(request.body)))


urlpatterns = [
    path("add", add),
    path("names", names),
    path("stream", stream),
    path("wait", wait),
    path("waiting", show_waiting),
    path("body", body),
]
app = get_asgi_application()
