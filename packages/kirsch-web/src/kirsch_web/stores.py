"""Stores of sessions: a SQLite file for one machine; for several Redis, Valkey, or a database through SQLAlchemy.

The client libraries are imported when a store is made. Those of Redis and SQLAlchemy are optional. Ids are stored as
hashes, so that a reader of the store cannot use them as cookies.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from typing import Any

from kirsch_web.errors import ConfigError

TIMEOUT = 5
"""Seconds to wait for Redis, unless its URL or client sets another timeout. Without one a request may wait for ever."""

# A script makes comparison and write one atomic step: Redis runs no other command meanwhile.
_PUT = """
if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'data', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _hash(key: str) -> str:
    return _digest(key).hex()


class SQLiteStore:
    """A store of sessions in a SQLite file, for any number of threads and processes of one machine.

    Args:
        path: the file. If it is missing, it is made, readable and writable only by its owner.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._idle: list[Any] = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._execute("PRAGMA journal_mode = WAL")
        self._execute(
            "CREATE TABLE IF NOT EXISTS session (key BLOB PRIMARY KEY, version INTEGER NOT NULL, "
            "data TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID"
        )
        self._execute("CREATE INDEX IF NOT EXISTS session_expires ON session (expires)")

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> tuple[list[Any], int]:
        """Run a statement on a connection that no other thread uses meanwhile. Return its rows and the number of
        changed rows."""
        import sqlite3

        with self._lock:
            if self._pid != os.getpid():  # SQLite's connections do not survive a fork
                self._pid, self._idle = os.getpid(), []
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            cursor = connection.execute(statement, values)
            return cursor.fetchall(), cursor.rowcount
        finally:
            with self._lock:
                self._idle.append(connection)

    def get(self, key: str) -> tuple[int, str] | None:
        rows, _ = self._execute(
            "SELECT version, data FROM session WHERE key = ? AND expires > ?", (_digest(key), time.time())
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        expires = time.time() + max_age
        if version:
            _, changed = self._execute(
                "UPDATE session SET version = version + 1, data = ?, expires = ? WHERE key = ? AND version = ?",
                (data, expires, _digest(key), version),
            )
            return changed == 1
        _, changed = self._execute(
            "INSERT INTO session VALUES (?, 1, ?, ?) ON CONFLICT (key) DO UPDATE "
            "SET version = 1, data = excluded.data, expires = excluded.expires WHERE expires <= ?",
            (_digest(key), data, expires, time.time()),
        )
        if secrets.randbelow(100) == 0:
            self.sweep()
        return changed == 1

    def delete(self, key: str) -> None:
        self._execute("DELETE FROM session WHERE key = ?", (_digest(key),))

    def sweep(self) -> None:
        """Remove the expired sessions. One of 100 new sessions, on average, calls it."""
        self._execute("DELETE FROM session WHERE expires <= ?", (time.time(),))

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class RedisStore:
    """A store of sessions in Redis or Valkey, which remove expired sessions themselves.

    Args:
        client: the URL, such as ``redis://localhost:6379/0``, ``rediss://`` for TLS or ``valkey://``; or a client
            object of the library redis or valkey, for one server, Sentinel or a cluster.
        prefix: the prefix of the keys.
    """

    def __init__(self, client: Any, prefix: str = "session:") -> None:
        self._client: Any = _connected(client) if isinstance(client, str) else client
        self._put = self._client.register_script(_PUT)
        self._prefix = prefix

    def get(self, key: str) -> tuple[int, str] | None:
        version, data = self._client.hmget(self._prefix + _hash(key), "version", "data")
        return None if version is None else (int(version), data if isinstance(data, str) else data.decode())

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        return bool(self._put([self._prefix + _hash(key)], [version, version + 1, data, max_age]))

    def delete(self, key: str) -> None:
        self._client.delete(self._prefix + _hash(key))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _connected(url: str) -> Any:
    library = "valkey" if url.startswith("valkey") else "redis"
    try:
        module = __import__(library)
    except ImportError:
        raise ConfigError(f"web.RedisStore needs the library {library}: pip install 'kirsch-web[{library}]'") from None
    return module.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)


class SQLAlchemyStore:
    """A store of sessions in a database table, through SQLAlchemy.

    Args:
        engine: the URL of the database, or an Engine.
        table: the name of the table. The store makes the table if it is missing.

    Each method runs one statement, or two, in autocommit mode.
    """

    def __init__(self, engine: Any, table: str = "session") -> None:
        try:
            import sqlalchemy
        except ImportError:
            raise ConfigError("web.SQLAlchemyStore needs SQLAlchemy: pip install 'kirsch-web[sqlalchemy]'") from None
        engine = sqlalchemy.create_engine(engine, pool_pre_ping=True) if isinstance(engine, str) else engine
        self._engine: Any = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._duplicate = sqlalchemy.exc.IntegrityError
        self.table = sqlalchemy.Table(
            table,
            sqlalchemy.MetaData(),
            sqlalchemy.Column("key", sqlalchemy.String(64), primary_key=True),
            sqlalchemy.Column("version", sqlalchemy.Integer, nullable=False),
            sqlalchemy.Column("data", sqlalchemy.Text, nullable=False),
            sqlalchemy.Column("expires", sqlalchemy.Double, nullable=False, index=True),
        )
        try:
            self.table.create(self._engine, checkfirst=True)
        except sqlalchemy.exc.DBAPIError:  # another process makes it at the same time
            if not sqlalchemy.inspect(self._engine).has_table(table):
                raise

    def _execute(self, statement: Any) -> Any:
        """Run a statement. Returns its first row, or the number of rows that it has changed."""
        with self._lock:
            if self._pid != os.getpid():  # connections belong to the process that has made them
                self._engine.dispose(close=False)
                self._pid = os.getpid()
        with self._engine.connect() as connection:
            result = connection.execute(statement)
            return result.first() if result.returns_rows else result.rowcount

    def get(self, key: str) -> tuple[int, str] | None:
        table = self.table.c
        row = self._execute(
            self.table.select()
            .with_only_columns(table.version, table.data)
            .where(table.key == _hash(key), table.expires > time.time())
        )
        return None if row is None else (row[0], row[1])

    def put(self, key: str, data: str, version: int, max_age: int) -> bool:
        table = self.table.c
        values = {"data": data, "expires": time.time() + max_age, "version": version + 1}
        if version:
            update = self.table.update().where(table.key == _hash(key), table.version == version)
            return bool(self._execute(update.values(values)) == 1)
        try:
            self._execute(self.table.insert().values(key=_hash(key), **values))
        except self._duplicate:
            expired = self.table.update().where(table.key == _hash(key), table.expires <= time.time())
            return bool(self._execute(expired.values(values)) == 1)
        if secrets.randbelow(100) == 0:
            self.sweep()
        return True

    def delete(self, key: str) -> None:
        self._execute(self.table.delete().where(self.table.c.key == _hash(key)))

    def sweep(self) -> None:
        """Remove the expired sessions. One of 100 new sessions, on average, calls it."""
        self._execute(self.table.delete().where(self.table.c.expires <= time.time()))

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
