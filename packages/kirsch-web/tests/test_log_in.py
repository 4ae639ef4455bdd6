"""The program of docs/log-in.md, as it is printed: what it does, and what attackers get."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kirsch_web.testing import Client, Reply

PAGE = Path(__file__).resolve().parent.parent / "docs" / "log-in.md"
PASSWORD = "correct horse battery"
SITE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, from the files of the page."""
    files = re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(files) == 6
    (tmp_path / "pages").mkdir()
    for name, text in files:
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("ACCOUNTS_SECRET", "0123456789abcdef0123456789abcdef")
    spec = importlib.util.spec_from_file_location("accounts", tmp_path / "accounts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "accounts", module)
    spec.loader.exec_module(module)
    yield module
    module.store.close()


@pytest.fixture
def client(program: Any) -> Client:
    client = Client(program.app, headers=SITE)
    assert client.post("/register", form={"name": "Ann", "password": PASSWORD}).status == 303
    return client


def log_in(client: Client, name: str = "Ann", password: str = PASSWORD, **others: Any) -> Reply:
    return client.post("/login", form={"name": name, "password": password, **others.pop("form", {})}, **others)


def stranger(client: Client) -> Client:
    return Client(client.app, headers=SITE)


def copy_of(client: Client) -> Client:
    """A client with the cookies that this one has now."""
    copied = stranger(client)
    copied.cookies.update(client.cookies)
    return copied


def test_a_visitor_registers_logs_out_in_and_changes_the_password(client: Client) -> None:
    assert "Hello, Ann." in client.get("/").text
    assert client.post("/logout").status == 303
    assert "Log in" in client.get("/").text
    assert client.get("/password").headers["Location"] == "/login?next=/password"
    reply = log_in(client, "ann", form={"next": "/password"})  # names differ in more than the case of letters
    assert (reply.status, reply.headers["Location"]) == (303, "/password")
    new = "another long password"
    assert client.post("/password", form={"old": "wrong", "new": new}).status == 422
    assert client.post("/password", form={"old": PASSWORD, "new": new}).status == 303
    assert "Hello" in client.get("/").text
    other = stranger(client)
    assert log_in(other).status == 422
    assert log_in(other, password=new).status == 303


def test_a_form_that_was_filled_wrongly_comes_back_with_its_values(client: Client) -> None:
    other = stranger(client)
    reply = other.post("/register", form={"name": "Ben", "password": "short"})
    assert (reply.status, "12 characters" in reply.text, 'value="Ben"' in reply.text) == (422, True, True)
    assert "short" not in reply.text
    assert "is taken" in other.post("/register", form={"name": "ANN", "password": PASSWORD}).text
    assert other.post("/register", form={"name": "", "password": PASSWORD}).status == 422
    assert other.post("/register", form={"name": "Ben", "password": "x" * 201}).status == 422
    assert other.post("/login", form={"name": "Ann"}).status == 422


def test_a_form_of_another_site_is_refused(client: Client) -> None:
    for path in ("/login", "/register", "/password", "/logout"):
        form = {"name": "Ann", "password": PASSWORD, "old": PASSWORD, "new": PASSWORD}
        reply = client.post(path, form=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert reply.status == 403, path
    assert "Hello, Ann." in client.get("/").text


def test_an_old_browser_needs_the_token_of_the_form(client: Client) -> None:
    old = Client(client.app, headers={"Sec-Fetch-Site": ""})
    old.cookies.update(client.cookies)
    assert old.post("/logout").status == 403
    found = re.search(r'name="csrf" value="([^"]+)"', old.get("/").text)
    assert found is not None
    assert old.post("/logout", form={"csrf": found[1]}).status == 303


def test_a_get_changes_nothing(client: Client) -> None:
    assert client.get("/logout").status == 405
    client.get(f"/login?name=Ann&password={PASSWORD.replace(' ', '+')}")
    assert "Hello, Ann." in client.get("/").text


def test_a_script_in_a_value_is_text(client: Client) -> None:
    script = "<script>alert(1)</script>"
    other = stranger(client)
    reply = log_in(other, script, form={"next": f'"><img src=x onerror="{script}'})
    assert "<script" not in reply.text
    assert "<img" not in reply.text
    assert other.post("/register", form={"name": script, "password": PASSWORD}).status == 303
    assert "&lt;script&gt;" in other.get("/").text
    assert "default-src 'self'" in reply.headers["Content-Security-Policy"]


def test_log_in_changes_the_session_and_log_out_ends_its_copies(client: Client) -> None:
    before = client.cookies["session"]
    log_in(client)
    assert client.cookies["session"] != before
    assert "Hello" not in client.get("/", headers={"Cookie": f"session={before}"}).text
    copied = copy_of(client)
    assert "Hello" in copied.get("/").text
    client.post("/logout")
    assert "Hello" not in copied.get("/").text


def test_a_new_password_ends_all_other_sessions(client: Client) -> None:
    other = stranger(client)
    log_in(other)
    copied = copy_of(other)
    assert "Hello" in copied.get("/").text
    client.post("/password", form={"old": PASSWORD, "new": "another long password"})
    assert "Hello" not in copied.get("/").text
    assert "Hello" not in other.get("/").text
    assert "Hello" in client.get("/").text


def test_the_cookie_goes_over_tls_alone_and_no_script_reads_it(client: Client) -> None:
    field = log_in(client).headers["Set-Cookie"]
    for attribute in ("Secure", "HttpOnly", "SameSite=Lax"):
        assert attribute in field
    reply = client.get("/")
    assert reply.headers["Cache-Control"] == "no-store"
    assert "Cookie" in reply.headers["Vary"]


def test_log_in_says_nothing_of_which_names_exist(client: Client) -> None:
    other = stranger(client)
    replies, times = [], []
    for name in ("Ann", "Zed"):
        start = time.process_time()
        replies.append(log_in(other, name, "wrong").text.replace(name, "NAME"))
        times.append(time.process_time() - start)
    tokens = re.compile(r'name="csrf" value="[^"]+"')
    assert tokens.sub("", replies[0]) == tokens.sub("", replies[1])
    assert min(times) > max(times) / 4


def test_guessing_is_stopped(program: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "hash_password", lambda *_: bytes(64))  # else it takes long, which is the point of it
    other = stranger(client)
    statuses = [log_in(other, "Ann", "wrong").status for _ in range(11)]
    assert statuses == [422] * 10 + [429] or statuses == [422] * 9 + [429] * 2  # the registration counts
    assert log_in(other).status == 429  # the right one too
    assert log_in(other, "Ben", "wrong").status == 422
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 901)
    assert log_in(other, "Ann", "wrong").status == 422


def test_addresses_of_one_network_count_together(program: Any) -> None:
    accounts = program.Root(program.Accounts(str(Path(program.folder, "a.db"))))._accounts
    tried = [accounts.may_try("ann", f"2001:db8::{number}") for number in range(1, 12)]
    assert tried == [True] * 10 + [False]
    assert accounts.may_try("ann", "2001:db8:0:1::1")


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"])
def test_log_in_leads_to_no_other_site(client: Client, to: str) -> None:
    reply = log_in(client, form={"next": to})
    assert reply.status == 400 or reply.headers["Location"] == "/"


def test_the_database_has_no_password_and_is_its_owners_alone(program: Any, client: Client) -> None:
    for file in Path(program.folder).glob("*.db*"):
        assert PASSWORD.encode() not in file.read_bytes()
        assert client.cookies["session"].split(".")[1].encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0
