"""Tables with a column of each kind, nullable and not, and relations."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import uuid
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql


class Base(orm.DeclarativeBase):
    pass


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"
    BLUE = "b"


MICROSECONDS = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
CLOCK = sa.Time().with_variant(mysql.TIME(fsp=6), "mysql", "mariadb")


class Owner(Base):
    __tablename__ = "owner"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str | None] = orm.mapped_column(sa.String(50))
    rank: orm.Mapped[int] = orm.mapped_column()
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(10))
    boss_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("owner.id"))
    boss: orm.Mapped[Owner | None] = orm.relationship(remote_side="Owner.id")
    things: orm.Mapped[list[Thing]] = orm.relationship(back_populates="owner")

    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "owner"}


class Chief(Owner):
    """An owner whose columns are in the same table."""

    bonus: orm.Mapped[int | None] = orm.mapped_column()

    __mapper_args__ = {"polymorphic_identity": "chief"}


class Clerk(Owner):
    """An owner with a table of its own."""

    __tablename__ = "clerk"

    id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("owner.id"), primary_key=True)
    desk: orm.Mapped[str | None] = orm.mapped_column(sa.String(50))

    __mapper_args__ = {"polymorphic_identity": "clerk"}


class Deputy(Chief):
    """A chief of a kind of its own."""

    __mapper_args__ = {"polymorphic_identity": "deputy"}


class Thing(Base):
    __tablename__ = "thing"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    i: orm.Mapped[int | None] = orm.mapped_column()
    j: orm.Mapped[int] = orm.mapped_column()
    big: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    f: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    g: orm.Mapped[float] = orm.mapped_column(sa.Double)
    d: orm.Mapped[decimal.Decimal | None] = orm.mapped_column(sa.Numeric(10, 2))
    s: orm.Mapped[str | None] = orm.mapped_column(sa.String(50), index=True)
    t: orm.Mapped[str] = orm.mapped_column(sa.String(50))
    flag: orm.Mapped[bool | None] = orm.mapped_column()
    sure: orm.Mapped[bool] = orm.mapped_column()
    day: orm.Mapped[datetime.date | None] = orm.mapped_column()
    at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(MICROSECONDS)
    clock: orm.Mapped[datetime.time | None] = orm.mapped_column(CLOCK)
    colour: orm.Mapped[Colour | None] = orm.mapped_column()
    uid: orm.Mapped[uuid.UUID | None] = orm.mapped_column()
    data: orm.Mapped[bytes | None] = orm.mapped_column()
    doc: orm.Mapped[Any] = orm.mapped_column(sa.JSON, nullable=True)
    owner_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("owner.id"))
    owner: orm.Mapped[Owner | None] = orm.relationship(back_populates="things")
    items: orm.Mapped[list[Item]] = orm.relationship(back_populates="thing")

    @property
    def is_sure(self) -> bool:
        return self.sure and self.j > 0

    @property
    def is_prefixed(self) -> bool:
        return self.s.startswith("a")  # type: ignore[union-attr]  # the rule for None decides


class Item(Base):
    __tablename__ = "item"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    thing_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("thing.id"))
    thing: orm.Mapped[Thing | None] = orm.relationship(back_populates="items")
    n: orm.Mapped[int | None] = orm.mapped_column()
    word: orm.Mapped[str | None] = orm.mapped_column(sa.String(50))


def wipe(session: orm.Session) -> None:
    """Empty the tables."""
    for table in (Item, Thing):
        session.execute(sa.delete(table))
    session.execute(sa.update(Owner).values(boss_id=None))
    for name in ("clerk", "owner"):
        session.execute(sa.delete(Base.metadata.tables[name]))
    session.commit()


@contextlib.contextmanager
def stored(engine: sa.Engine, rows: list[Any]) -> Iterator[orm.Session]:
    """A session on tables that hold these objects alone, and nothing afterwards."""
    with orm.Session(engine, autoflush=False) as session:
        wipe(session)
        insert(session, rows)
        yield session
        session.rollback()
        wipe(session)


def insert(session: orm.Session, rows: list[Any]) -> None:
    """Store objects, and forget them so that they are read as the database has them."""
    session.add_all(rows)
    session.commit()
    session.expunge_all()
