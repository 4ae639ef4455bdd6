"""Django's views of ``websocket_wsgi_frameworks``."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path
from websocket_wsgi_frameworks import _take, _Upper

from kirsch.websocket import accept


def handled(request: HttpRequest) -> HttpResponse:
    accept(request.META, _Upper(request.GET["name"]))
    return HttpResponse()


def taken(request: HttpRequest) -> HttpResponse:
    _take(request.META["wsgi.websocket"], request.GET["name"])
    return HttpResponse()


def fails(request: HttpRequest) -> HttpResponse:
    request.META["wsgi.websocket"].accept()
    raise ValueError("in a view")


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("a page")


urlpatterns = [path("handled", handled), path("taken", taken), path("fails", fails), path("page", page)]
