"""flask-sock and simple-websocket as they come from the package index, over ``werkzeug.socket``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import simple_websocket
from flask import Flask, request
from flask_sock import Sock

if TYPE_CHECKING:
    from collections.abc import Callable

flask = Flask(__name__)
sock = Sock(flask)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@flask.route("/")
def page() -> str:
    return "a page"


@sock.route("/echo")
def echo(ws: Any) -> None:
    ws.send(f"hello, {request.args.get('name', '?')}")
    try:
        while True:
            ws.send(ws.receive())
    except simple_websocket.ConnectionClosed as closed:
        say(f"closed with {closed.reason}")
        raise


@sock.route("/returns")
def returns(ws: Any) -> None:
    ws.send("that is all")


@sock.route("/closes")
def closes(ws: Any) -> None:
    ws.close(4242, "enough")


@sock.route("/fails")
def fails(ws: Any) -> None:
    ws.send("now")
    raise ValueError("raised in a view")


def plain(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """simple-websocket without a framework, as its documentation shows it."""
    ws = simple_websocket.Server.accept(environ, subprotocols=["two"])
    try:
        while True:
            ws.send(ws.receive())
    except simple_websocket.ConnectionClosed:
        say("closed")
    return []


def pinging(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    ws = simple_websocket.Server.accept(environ, ping_interval=0.1)
    try:
        while True:
            ws.send(ws.receive())
    except simple_websocket.ConnectionClosed as closed:
        say(f"closed with {closed.reason}")
    return []


app = flask
