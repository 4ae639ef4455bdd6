"""Sessions: a dictionary for each client, in a signed cookie or in a store.

    app = web.App(Root(), tools=[web.session(secret="...")])

    def add(self, book: int, *, session: web.Session) -> None:
        session["basket"] = [*session.get("basket", []), book]

Without a store the cookie holds the dictionary itself, as JSON that the client can read but not change. With a store
the cookie holds a random id. Sessions are not locked while a handler runs. If two requests of one client change its
session at the same time, the changes are merged key by key; if both have changed the same key, the later request ends
with 409 and names the key.

The session is written, and a cookie sent, only if the handler has changed the session. A page that has read the session
gets ``Vary: Cookie``.

With a store, call :meth:`Session.rotate` at log-in and :meth:`Session.clear` at log-out. Both remove the old id from
the store, so that a copy of the old cookie is useless. **Without a store the server cannot revoke a cookie.** ``clear``
makes the browser remove its cookie, and ``rotate`` has no effect on copies: a copy, say from a backup of a browser's
profile, stays valid until ``max_age`` has passed. If log-out has to end a session everywhere, give the tool a store.
Otherwise choose a short ``max_age``, or keep a counter for each user in the database: write it into the session at
log-in, compare it at each request, and increase it at log-out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator, MutableMapping
from typing import Any, Protocol

from kirsch_web.errors import HTTPError
from kirsch_web.fields import cookie
from kirsch_web.hooks import Hook, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request

MAX_COOKIE = 3584
"""The maximum size of a session in a cookie, in bytes. Browsers allow 4096 with the name and the attributes."""
KEPT_FIELDS = 256
"""Cookie fields with a verified signature that a process remembers. No client adds one without a valid cookie."""
MAX_KEPT_FIELD = 4096
"""Characters of a Cookie field that is remembered; so those of a process take 3 MB at most."""
ATTEMPTS = 5
"""The number of attempts to write a session that other requests change at the same time, before 503."""

_scan: Any = getattr(json.JSONDecoder(), "scan_once")  # noqa: B009 - typeshed does not declare it


class SessionTooLarge(Exception):
    """A session is too large for a cookie."""


class Store(Protocol):
    """A store of sessions and of rate limits. A class with these three methods can store them in another database."""

    def get(self, key: str) -> tuple[int, str] | None:
        """Return the version and the data of a session; None if it does not exist or has expired."""

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        """Write ``data`` as version ``version + 1`` if the stored version is ``version``, and return whether it was.
        The version of a session that does not exist or has expired is 0. Compare and write in one atomic step."""

    def delete(self, key: str) -> None:
        """Remove a session, if it exists."""


class Session(MutableMapping[str, Any]):
    """The session of a request: a dictionary of values that JSON can represent. It is loaded at its first use."""

    given_by = "session"
    """The name of the tool that makes the sessions."""
    _values: dict[str, Any] | None = None
    _raw = "{}"
    """The session as it was loaded, as JSON."""
    _touched = False
    """True if the session may have changed: a key was set, or a mutable value, a list or dictionary, was read."""
    _saved = False
    key = ""
    """The id in the store; empty for a new session, and for a session in a cookie."""
    version = 0
    rotates = False

    def __init__(self, keeper: Keeper, environ: dict[str, Any]) -> None:
        self._keeper = keeper
        self._environ = environ  # not the request: a reference cycle would live until the garbage collector runs

    @classmethod
    def __from_request__(cls, request: Request) -> Session:
        found: Session | None = request._session
        # `is None`, because the truth value would load the session. The property raises if there is no session.
        return request.session if found is None else found

    def _read(self) -> dict[str, Any]:
        values = self._values
        if values is None:
            self._raw = self._keeper.load(self)
            values = self._values = _loaded(self._raw)
        return values

    def _write(self) -> dict[str, Any]:
        if self._saved:
            raise RuntimeError("the session was written already, when the response began; change it before")
        self._touched = True
        return self._read()

    def __getitem__(self, name: str) -> Any:
        values = self._values
        value = (self._read() if values is None else values)[name]
        if type(value) in (list, dict):
            self._touched = True
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):  # JSON has no other keys, and would turn a number into text
            raise TypeError(f"a name in a session is text, not {name!r}")
        self._write()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._write()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"<Session {'not read' if self._values is None else self._values!r}>"

    def rotate(self) -> None:
        """Give the session a new id in the store, and remove the old one. Call it when a user logs in.

        A session in a cookie has no id. It is signed again, and copies of the old cookie stay valid until ``max_age``.
        """
        self._write()
        self.rotates = True

    @property
    def is_new(self) -> bool:
        """True if the client sent no session, or one that is forged or has expired."""
        return not self._read() and not self.key

    def save(self, request: Request) -> None:
        """Write the session if it has changed, and set the cookie. The tool calls it when the response begins."""
        if self._saved:
            return  # do not repeat an attempt that failed: its error is the response
        self._saved = True
        if self._values is None:
            return
        request.varies_by_cookie()  # a shared cache must not give this page to another client
        if not self._touched:
            return
        after = {name: _dump(value) for name, value in self._values.items()}
        before = _dumped(self._raw)
        if after != before or self.rotates:
            self._keeper.store(self, request, before, after)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _object(values: Mapping[str, str]) -> str:
    """Return a JSON object. ``values`` are already encoded as JSON."""
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in values.items()) + "}"


class Keeper:
    """Loads, stores and signs sessions with the settings of one session tool."""

    def __init__(
        self,
        secret: str | Sequence[str],
        name: str,
        max_age: int,
        store: Store | None,
        cookie_options: dict[str, Any],
    ) -> None:
        given = [secret] if isinstance(secret, str) else list(secret)
        # The signing key depends on the purpose, the cookie's name and the kind of content. So a secret may have other
        # uses, and a cookie signed under one name, or for an id, is not valid under another name or as content.
        kind = f"kirsch_web session\0{name}\0{'content' if store is None else 'id'}\0"
        self._signers = [_Signer(hashlib.sha256((kind + each).encode()).digest()) for each in given]
        self.name = name
        self.max_age = max_age
        self._store = store
        self._cookie_options = cookie_options
        # Verified cookies by their Cookie fields: clients repeat them, and to verify one takes as long as the rest of a
        # request with a session.
        self._verified: dict[str, tuple[int, str]] = {}

    def load(self, session: Session) -> str:
        """Return the session that the client's cookie stands for, as JSON; an empty one if it is missing, forged or
        too old."""
        field = session._environ.get("HTTP_COOKIE", "")
        verified = self._verified.get(field) or self._verify(field)
        if verified is None:
            return "{}"
        signed_at, content = verified
        if time.time() - signed_at > self.max_age:
            return "{}"
        if self._store is None:
            return content
        found = self._store.get(content)
        if found is None:
            return "{}"
        session.key = content
        session.version, data = found
        return data

    def store(self, session: Session, request: Request, before: dict[str, str], after: dict[str, str]) -> None:
        """Store the values ``after``, or remove the session if there are none, and set the cookie."""
        options = self._cookie_options
        if not after:
            if self._store is not None and session.key:
                self._store.delete(session.key)
            request.response.delete_cookie(self.name, **options)
            return
        if self._store is None:
            payload = base64.urlsafe_b64encode(_object(after).encode()).rstrip(b"=").decode()
            value = self._signed(payload)
            if len(value) > MAX_COOKIE:
                raise SessionTooLarge(
                    f"the session has {len(value)} bytes in its cookie, and {MAX_COOKIE} fit; give the tool a store"
                )
            request.response.set_cookie(self.name, value, max_age=self.max_age, **options)
            return
        self._put(session, before, after)
        request.response.set_cookie(self.name, self._signed(session.key), max_age=self.max_age, **options)

    def _put(self, session: Session, before: dict[str, str], after: dict[str, str]) -> None:
        store = self._store
        assert store is not None
        old = ""
        merged = after
        if session.rotates or not session.key:
            found = store.get(session.key) if session.key else None
            if found is not None and found[0] != session.version:  # keep the changes of other requests
                merged = _merged(before, after, _dumped(found[1]))
            old, session.key, session.version = session.key, secrets.token_urlsafe(24), 0
        for _ in range(ATTEMPTS):
            if store.put(session.key, _object(merged), session.version, self.max_age):
                session.version += 1
                if old:
                    store.delete(old)
                return
            found = store.get(session.key)
            if found is None:
                # Another request has removed the session. Writing it again would undo a log-out.
                raise HTTPError(409, "the session was ended by another request")
            session.version = found[0]
            merged = _merged(before, after, _dumped(found[1]))
        raise HTTPError(503, "the session is being changed by too many requests", headers=[("Retry-After", "1")])

    # Signing

    def _signed(self, payload: str) -> str:
        text = f"{int(time.time()):x}.{payload}"
        return f"{text}.{self._signers[0].sign(text)}"

    def _verify(self, field: str) -> tuple[int, str] | None:
        """Return when the cookie in a ``Cookie`` field was signed and what it holds, the session's JSON or its id;
        None if it is missing, or none of the secrets has signed it."""
        value = cookie(field, self.name)
        if not value or not value.isascii():
            return None
        text, _, signature = value.rpartition(".")
        if not any(hmac.compare_digest(signer.sign(text), signature) for signer in self._signers):
            return None
        stamp, _, content = text.partition(".")
        found = int(stamp, 16), _decode(content) if self._store is None else content
        if len(field) <= MAX_KEPT_FIELD:
            if len(self._verified) >= KEPT_FIELDS:
                self._verified.clear()
            self._verified[field] = found
        return found


class _Signer:
    """HMAC-SHA-256 with one key, by the standard library. The keyed hash is made once, and copied for each text.

    A signature took 1.2 µs of processor time, 0.6 with cryptography (a dependency of 10 MB), and 4.5 with itsdangerous.
    """

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")

    def sign(self, text: str) -> str:
        """Return the signature of ``text``, in hexadecimal digits."""
        keyed = self._keyed.copy()
        keyed.update(text.encode())
        return keyed.hexdigest()


def _decode(payload: str) -> str:
    if "-" in payload or "_" in payload:
        payload = payload.replace("-", "+").replace("_", "/")
    return binascii.a2b_base64(payload + "=" * (-len(payload) % 4)).decode()


def _loaded(data: str) -> dict[str, Any]:
    """Return the values of JSON from a verified cookie or a store."""
    found: dict[str, Any] = _scan(data, 0)[0]  # without white space around it
    return found


def _dumped(data: str) -> dict[str, str]:
    """Return the values of a store's data, each as JSON."""
    return {name: _dump(value) for name, value in _loaded(data).items()}


def _merged(before: dict[str, str], mine: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
    """Return the values ``theirs`` with the changes from ``before`` to ``mine``. Raises 409 if a key was changed to
    different values in both."""
    merged = dict(theirs)
    for name in before.keys() | mine.keys():
        if mine.get(name) == before.get(name):
            continue
        if theirs.get(name) not in (before.get(name), mine.get(name)):
            raise HTTPError(409, f"the session's {name} was changed by another request at the same time; try again")
        if name in mine:
            merged[name] = mine[name]
        else:
            merged.pop(name, None)
    return merged


class SessionTool(Tool):
    """The tool ``session``: a dictionary for each client; :func:`session` makes one.

    Options:
        secret: the text that signs the cookie, 16 characters or more; or a list, whose first text signs while
            signatures by all are accepted. Required.
        cookie: the name of the cookie; default: session.
        max_age: the number of seconds after its last change when a session expires; default: two weeks.
        store: the store of sessions: a `web.SQLiteStore`, a `web.RedisStore`, a `web.SQLAlchemyStore`, or your own;
            default: none, the cookie itself holds the session.
        secure: whether browsers send the cookie only over HTTPS; default: true.
        same_site: Lax, Strict or None; default: Lax.
        path: the path below which browsers send the cookie; default: `/`.
        domain: the domain whose hosts receive the cookie; default: only this host.
    """

    gives = "session"
    types = {  # noqa: RUF012 - no one changes it
        "secret": None, "cookie": str, "max_age": int, "store": None, "secure": bool, "same_site": str,
        "path": str, "domain": str,
    }  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__("before_request_body", None, "session", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        secret = options.get("secret")
        given = [secret] if isinstance(secret, str) else secret
        if not given or not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
            yield "it needs a secret: a text, or a list whose first signs and whose others are still accepted"
        elif any(len(each) < 16 for each in given):
            yield "a secret has at least 16 characters; secrets.token_hex() makes one"
        if options.get("max_age", 1) <= 0:
            yield "max_age is a number of seconds above 0"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        keeper = Keeper(
            options["secret"],
            options.get("cookie", "session"),
            options.get("max_age", 14 * 86_400),
            options.get("store"),
            {
                "secure": options.get("secure", True),
                "same_site": options.get("same_site", "Lax"),
                "path": options.get("path", "/"),
                "domain": options.get("domain", ""),
            },
        )

        def begin(request: Request) -> None:
            request._session = Session(keeper, request.environ)

        def save(request: Request) -> None:
            request._session.save(request)

        yield Hook("on_start_resource", begin, priority=10, name="session: begin")
        yield Hook("before_finalize", save, priority=60, name="session: save")


def session(secret: str | Sequence[str], **options: Any) -> SessionTool:
    """Return the tool ``session`` for all paths.

    Args:
        secret: the text that signs the cookie. To change it without ending sessions, give a list: its first text
            signs, and signatures by all are accepted.
        **options: ``store`` (default: the cookie itself), ``max_age`` in seconds (two weeks), ``cookie`` (the name of
            the cookie: session), ``secure`` (True), ``same_site`` (Lax), ``path`` and ``domain``.
    """
    return SessionTool(secret=secret, **options)
