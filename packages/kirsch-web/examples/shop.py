"""A small shop: a SQLite database, a basket in the session, forms that other sites cannot send.

    kirsch shop:app

SHOP_DATABASE names the file (default: shop.sqlite here), SHOP_SECRET signs the sessions.
"""

import os
import secrets
import sqlite3
from html import escape

import kirsch_web as web

DATABASE = os.environ.get("SHOP_DATABASE", "shop.sqlite")
SECRET = os.environ.get("SHOP_SECRET") or secrets.token_hex()  # without one, sessions end with the process


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, timeout=10)
    connection.row_factory = sqlite3.Row
    return connection


def create() -> None:
    with connect() as db:
        db.execute("CREATE TABLE IF NOT EXISTS book (id INTEGER PRIMARY KEY, title TEXT UNIQUE, pence INTEGER)")
        db.executemany("INSERT OR IGNORE INTO book (title, pence) VALUES (?, ?)", [("Emma", 990), ("Persuasion", 850)])


class Books:
    def index(self) -> list[dict[str, object]]:
        """GET /books: all books as JSON."""
        with connect() as db:
            return [dict(row) for row in db.execute("SELECT id, title, pence FROM book ORDER BY title")]

    def show(self, id: int) -> dict[str, object]:
        """GET /books/show/1: one book, or 404."""
        with connect() as db:
            row = db.execute("SELECT id, title, pence FROM book WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise web.NotFound(f"there is no book {id}")
        return dict(row)


class Basket:
    def __init__(self, books: Books) -> None:
        self._books = books

    def index(self, *, session: web.Session) -> dict[str, object]:
        """GET /basket: what is in it, and what it costs."""
        found = [self._books.show(id) for id in session.get("basket", [])]
        return {"books": found, "pence": sum(int(str(each["pence"])) for each in found)}

    @web.post
    def add(self, book: int, *, session: web.Session) -> web.Response:
        """POST /basket/add with a field ``book``."""
        self._books.show(book)
        session["basket"] = [*session.get("basket", []), book]
        raise web.HTTPRedirect("/basket", 303)


class Root:
    def __init__(self) -> None:
        self.books = Books()
        self.basket = Basket(self.books)

    def index(self) -> str:
        """GET /: the shop as a page."""
        forms = "".join(
            f'<form method="post" action="/basket/add"><button name="book" value="{book["id"]}">'
            f"{escape(str(book['title']))}</button></form>"
            for book in self.books.index()
        )
        return f"<!DOCTYPE html><title>Shop</title><h1>Shop</h1>{forms}"


create()
# secure=False sends the cookie over plain HTTP too, as on your own machine. Leave it out where there is TLS.
app = web.App(Root(), tools=[web.session(secret=SECRET, secure=False), web.csrf(), web.security_headers()])
