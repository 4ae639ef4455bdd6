"""Quart: streams in both directions, background tasks, hooks around serving, cookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from quart import Quart, jsonify, request, session

app = Quart(__name__)
app.secret_key = "no secret"
done = asyncio.Event()


@app.before_serving
async def begin() -> None:
    app.config["BEGUN"] = True


@app.after_serving
async def end() -> None:
    print("served", flush=True)


@app.route("/stream")
async def stream() -> Any:
    async def lines() -> AsyncIterator[str]:
        for number in range(1000):
            yield f"{number}\n"
            if number % 100 == 0:
                await asyncio.sleep(0)

    return lines(), {"X-Begun": str(app.config["BEGUN"])}


@app.route("/sum", methods=["POST"])
async def add() -> Any:
    total = pieces = 0
    async for piece in request.body:
        total += sum(piece)
        pieces += 1
    return jsonify(total=total, many=pieces > 1)


@app.route("/visits")
async def visits() -> Any:
    session["visits"] = session.get("visits", 0) + 1
    return jsonify(session["visits"])


@app.route("/later", methods=["POST"])
async def later() -> Any:
    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    app.add_background_task(work)
    return "accepted", 202


@app.route("/done")
async def wait_done() -> str:
    await asyncio.wait_for(done.wait(), 15)
    return "done"
