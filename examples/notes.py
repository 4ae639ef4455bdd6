"""A FastAPI application with a database: ``pip install fastapi``, then ``kirsch notes:app``, from this folder.

    curl -X POST 'http://127.0.0.1:8000/notes?text=milk'
    curl -N http://127.0.0.1:8000/export

Kirsch sees that it is an ASGI application. A worker is ready when the lifespan has yielded: a reload with a database
that cannot be opened keeps the workers that serve.
"""

import asyncio
import contextlib
import os
import sqlite3
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

DATABASE = os.environ.get("NOTES", "notes.db")


def connect():
    # Threads take turns with a connection. Without an isolation level each statement is a transaction.
    connection = sqlite3.connect(DATABASE, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for a writer, also in other workers
    return connection


@contextlib.asynccontextmanager
async def lifespan(app):
    # What is yielded here is request.state of every request of this worker.
    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    yield {"exports": asyncio.Semaphore(4)}
    # What follows runs after the last request, also when a reload replaces the worker.
    print("the last request is done", flush=True)


def database():
    # A dependency is made for each request, in a thread, and ended when the response has been sent.
    with contextlib.closing(connect()) as connection:
        yield connection


app = FastAPI(lifespan=lifespan)
Database = Annotated[sqlite3.Connection, Depends(database)]


@app.post("/notes", status_code=201)
def add(text: str, connection: Database):
    # FastAPI runs `def` in a thread, so SQLite may wait here.
    if not text.strip():
        raise HTTPException(422, "a note needs a text")
    return {"id": connection.execute("INSERT INTO note (text) VALUES (?)", [text]).lastrowid}


@app.get("/notes/{number}")
def read(number: int, connection: Database):
    row = connection.execute("SELECT text FROM note WHERE id = ?", [number]).fetchone()
    if row is None:
        raise HTTPException(404, f"there is no note {number}")
    return {"id": number, "text": row[0]}


@app.get("/export")
async def export(request: Request, connection: Database):
    async def rows():
        # Each row leaves when it is made. The next one is made when the client has taken the ones before it, so an
        # export of any length needs little memory, and a client that leaves ends it.
        async with request.state.exports:  # four at a time
            for number, text in connection.execute("SELECT id, text FROM note ORDER BY id"):
                yield f"{number}\t{text}\n"
                await asyncio.sleep(0)  # let other requests of this worker run

    return StreamingResponse(rows(), media_type="text/tab-separated-values")
