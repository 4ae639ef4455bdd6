"""The unflushed changes of a session, and refusals of queries that read values unknown before a flush."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query.emit import dialect_name, op
from kirsch_query.errors import Refused
from kirsch_query.kinds import NotExact, kind_of, stored
from kirsch_query.terms import primary_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_FLUSH = "Flush it first: session.flush()."


class Changes:
    """The new, changed and deleted objects of one mapped class in a session."""

    def __init__(self, session: orm.Session, model: Any) -> None:
        self.session = session
        self.mapper = sa.inspect(model).mapper
        self.dialect = session.get_bind(self.mapper).dialect
        cls = self.mapper.class_
        self.name = cls.__name__
        self.new = [each for each in session.new if isinstance(each, cls)]
        dirty = [each for each in session.dirty if isinstance(each, cls)]
        deleted = [each for each in session.deleted if isinstance(each, cls)]
        self.live = [*sorted(self.new, key=inserted), *dirty]
        """The objects that memory judges."""
        self.identities = [sa.inspect(each).identity for each in (*dirty, *deleted)]
        """The primary keys of the rows that the database must leave out."""

    @contextlib.contextmanager
    def flushed(self) -> Iterator[None]:
        """A context manager that sets the attributes that a flush will set, if known, and resets them at the end. These
        are plain defaults of columns, and foreign keys of related objects that have keys. SQLAlchemy does not notice:
        neither the history of an attribute nor the effect of a flush changes.
        """
        before: list[tuple[dict[str, Any], str, bool, Any]] = []
        try:
            for item in self.live:
                state = sa.inspect(item)
                for name, value in {**self._defaults(item, state), **self._keys(state)}.items():
                    before.append((state.dict, name, name in state.dict, state.dict.get(name)))
                    state.dict[name] = value
            yield
        finally:
            for values, name, was_set, value in reversed(before):
                if was_set:
                    values[name] = value
                else:
                    del values[name]

    def _defaults(self, item: Any, state: Any) -> dict[str, Any]:
        """Return the plain defaults that a flush sets in a new object, for attributes that are None or missing."""
        if item not in self.session.new:
            return {}
        return {
            name: attribute.columns[0].default.arg
            for name, attribute in self.mapper.column_attrs.items()
            if state.dict.get(name) is None and getattr(attribute.columns[0].default, "is_scalar", False)
        }

    def _keys(self, state: Any) -> dict[str, Any]:
        """Return the foreign keys that follow from changed relations, if the related objects have their keys."""
        found: dict[str, Any] = {}
        for relation in self.mapper.relationships:
            if relation.direction is not orm.RelationshipDirection.MANYTOONE:
                continue
            related = state.dict.get(relation.key)
            if related is None or not state.attrs[relation.key].history.has_changes():
                continue
            there = sa.inspect(related)
            for local, remote in relation.local_remote_pairs:
                value = there.dict.get(there.mapper.get_property_by_column(remote).key)
                if there.persistent and value is not None:
                    found[self.mapper.get_property_by_column(local).key] = value
        return found

    def excluded(self, target: Any) -> sa.ColumnElement[bool]:
        """Return the condition that a row is not one that the session has changed or deleted."""
        columns = primary_key(target)
        types = [each.type for each in self.mapper.primary_key]
        parts = []
        for identity in self.identities:
            same = []
            for column, type_, value in zip(columns, types, identity, strict=True):
                bound = sa.literal(value, type_)
                same.append(op("text_is", column, bound) if isinstance(type_, sa.String) else column == bound)
            parts.append(sa.and_(*same))
        if len(columns) == 1 and not isinstance(types[0], sa.String):
            bounds = [sa.literal(identity[0], types[0]) for identity in self.identities]
            without: sa.ColumnElement[bool] = columns[0].not_in(bounds)
            return without
        found: sa.ColumnElement[bool] = op("not_true", sa.or_(*parts))
        return found

    def refuse_unknown(self, names: Iterable[str], *, but_key: bool = False) -> None:
        """Raise Refused for attributes that a flush will set, or that disagree with a relation until the flush."""
        read = set(names)
        for item in self.live:
            state = sa.inspect(item)
            if item in self.new:
                self._refuse_unset(state, read, but_key)
            elif self.session.is_modified(item, include_collections=False):
                self._refuse_updated(read)
            self._refuse_converted(state, read)
            for relation in self.mapper.relationships:
                if relation.direction is orm.RelationshipDirection.MANYTOONE:
                    self._refuse_stale(item, state, relation, read)

    def _refuse_unset(self, state: Any, read: set[str], but_key: bool) -> None:
        for name in read & set(self.mapper.column_attrs.keys()):
            column = self.mapper.column_attrs[name].columns[0]
            if name in state.dict and state.dict[name] is not None:
                continue
            if but_key and column.primary_key:
                continue
            # A flush omits an attribute of None, so that the default of the column is used.
            if column.primary_key or column.default is not None or column.server_default is not None:
                raise Refused(
                    f"a new {self.name} gets its {name} when it is flushed, and the query reads it", hint=_FLUSH
                )

    def _refuse_updated(self, read: set[str]) -> None:
        for name in read & set(self.mapper.column_attrs.keys()):
            column = self.mapper.column_attrs[name].columns[0]
            updates = (getattr(column, "onupdate", None), getattr(column, "server_onupdate", None))
            if updates != (None, None) or column is self.mapper.version_id_col:
                raise Refused(f"a flush will update {self.name}.{name}, which the query reads", hint=_FLUSH)

    def _refuse_converted(self, state: Any, read: set[str]) -> None:
        """Raise Refused for values that the database stores differently, and for SQL expressions."""
        for name in read & set(self.mapper.column_attrs.keys()) & state.dict.keys():
            value, type_ = state.dict[name], self.mapper.column_attrs[name].columns[0].type
            try:
                same = value is None or stored(kind_of(type_), value)
            except NotExact:  # the database does not evaluate this type
                continue
            if dialect_name(self.dialect) == "mariadb" and getattr(value, "microsecond", False):
                kept: Any = type_.dialect_impl(self.dialect)
                same = same and getattr(kept, "fsp", None) == 6  # otherwise the fraction of a second is truncated
            if not same:
                raise Refused(
                    f"{self.name}.{name} is {value!r}: a flush will store another value, and the query reads it",
                    hint=f"{_FLUSH} Or give it a value of the column's type.",
                )

    def _refuse_stale(self, item: Any, state: Any, relation: Any, read: set[str]) -> None:
        keys = [
            (self.mapper.get_property_by_column(local).key, remote) for local, remote in relation.local_remote_pairs
        ]
        moved = state.attrs[relation.key].history.has_changes()
        if moved and read & {key for key, _ in keys}:
            related = getattr(item, relation.key)
            for key, remote in keys:
                there = None
                if related is not None:
                    there = getattr(related, sa.inspect(related).mapper.get_property_by_column(remote).key)
                if (related is not None and there is None) or there != getattr(item, key):
                    raise Refused(
                        f"{self.name}.{relation.key} was changed, so that a flush will change {key}, "
                        "which the query reads",
                        hint=_FLUSH,
                    )
        if not moved and relation.key in read and any(state.attrs[key].history.has_changes() for key, _ in keys):
            raise Refused(
                f"{self.name}.{keys[0][0]} was changed, and {relation.key}, which the query reads, "
                "follows when it is flushed",
                hint=_FLUSH,
            )


def refuse_related(
    session: orm.Session, classes: Collection[Any], models: Iterable[Any], read: Collection[str], *, unknown: bool
) -> None:
    """Raise Refused for a query that reads related objects which the session has changed: the database has the old
    state. ``classes`` are the classes that it reads through relations; with ``unknown`` it may read others too.
    ``read`` are the attributes of the models that it reads.
    """
    own = tuple(sa.inspect(model).mapper.class_ for model in models)
    for each in (*session.new, *session.dirty):
        state = sa.inspect(each)
        if state.mapper._is_orphan(state) and (state.persistent or state._orphaned_outside_of_session):
            _refuse_leaving(each, (*own, *classes))
    for each in session.deleted:
        for cls in own:
            _refuse_following(each, cls, None if unknown else read)
        for cls in classes:
            _refuse_following(each, cls, None)
    for each in (*session.new, *session.dirty, *session.deleted):
        related = isinstance(each, tuple(classes)) and not _is_only_held(session, each, classes)
        if related or (unknown and not isinstance(each, own)):
            raise Refused(
                f"the query may read other objects, and the session has an unsaved {type(each).__name__}", hint=_FLUSH
            )
        for relation in sa.inspect(each).mapper.relationships:
            one_sided = relation.uselist and not relation._reverse_property
            if one_sided and sa.inspect(each).attrs[relation.key].history.has_changes():
                target = relation.mapper.class_
                if any(issubclass(target, cls) or issubclass(cls, target) for cls in (*own, *classes)):
                    raise Refused(
                        f"{type(each).__name__}.{relation.key} was changed, "
                        "and objects at its other end know when it is flushed",
                        hint=_FLUSH,
                    )


def _is_only_held(session: orm.Session, item: Any, classes: Collection[Any]) -> bool:
    """Return whether only collections of objects of other classes than ``classes`` were changed in an object. Adding
    Entry(blog=blog) changes blog.entries, which is irrelevant for a query that reads no entries.
    """
    if item in session.new or item in session.deleted:
        return False
    state = sa.inspect(item)
    for name in {*state.committed_state}:
        relation = state.mapper.relationships.get(name)
        if relation is None or relation.direction is not orm.RelationshipDirection.ONETOMANY:
            return False
        target = relation.mapper.class_
        if any(issubclass(target, cls) or issubclass(cls, target) for cls in classes):
            return False
    return not session.is_modified(item, include_collections=False)


def _refuse_leaving(item: Any, classes: Collection[Any]) -> None:
    """Raise Refused if a flush will delete an orphan, and perhaps objects to which the deletion cascades."""
    mapper = sa.inspect(item).mapper
    held = [relation.mapper.class_ for relation in mapper.relationships if relation.cascade.delete]
    if any(issubclass(one, cls) or issubclass(cls, one) for one in (type(item), *held) for cls in classes):
        raise Refused(f"a flush will delete a {type(item).__name__} that was taken from its owner", hint=_FLUSH)


def _refuse_following(item: Any, cls: Any, read: Collection[str] | None) -> None:
    """Raise Refused if deleting an object deletes others of a class, or changes an attribute that is read. SQLAlchemy
    marks objects of its own cascades at once; the other effects occur in a flush or in the database.
    """
    mapper, other = sa.inspect(item).mapper, sa.inspect(cls).mapper
    keys = [key for table in other.tables for key in table.foreign_keys if key.column.table in mapper.tables]
    deletes = any((key.ondelete or "").upper() == "CASCADE" for key in keys)
    changed = {key.parent for key in keys if (key.ondelete or "").upper().startswith("SET")}
    for relation in mapper.relationships:
        if relation.direction is orm.RelationshipDirection.ONETOMANY and relation.mapper.common_parent(other):
            deletes = deletes or (relation.cascade.delete and bool(relation.passive_deletes))
            changed |= set() if relation.cascade.delete else relation.remote_side
    names = {other.get_property_by_column(each).key for each in changed if each in other.c.values()}
    if deletes or (names and (read is None or not names.isdisjoint(read))):
        raise Refused(
            f"a {type(item).__name__} was deleted, and a flush may change or delete {cls.__name__} objects with it",
            hint=_FLUSH,
        )


def inserted(item: Any) -> int:
    """Return the position of a new object in the order in which a flush inserts."""
    return int(sa.inspect(item).insert_order or 0)
