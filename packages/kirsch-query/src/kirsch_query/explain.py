"""The explanation of a query: SQL, bound values, additions with reasons, refusals, and the index that is used."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kirsch_query import sql
from kirsch_query.advice import advice
from kirsch_query.emit import dialect_name
from kirsch_query.errors import QueryError, Refused

if TYPE_CHECKING:
    from kirsch_query.trace import Query


@dataclass
class Explanation:
    """The result of :meth:`Where.explain`. ``print`` shows it."""

    query: str
    sql: dict[str, str] = field(default_factory=dict)
    """The statement on each database on which the query is exact."""
    values: dict[str, Any] = field(default_factory=dict)
    """The values that are bound to its parameters."""
    added: list[tuple[str, str]] = field(default_factory=list)
    """Parts of the query with what was added so that SQL means what Python means."""
    refused: dict[str, list[Refused]] = field(default_factory=dict)
    """Why it is not exact, on each database where it is not."""
    plan: list[str] = field(default_factory=list)
    """The lines of the engine's EXPLAIN."""
    indexes: list[str] = field(default_factory=list)
    """The indexes of the models' tables that the plan names."""
    advice: list[str] = field(default_factory=list)
    """The large tables that the plan reads as a whole, and the indexes that could serve the query."""

    def __str__(self) -> str:
        lines = [self.query]
        for name, text in self.sql.items():
            lines += ["", f"{name}:", *(f"  {line.rstrip()}" for line in text.splitlines())]
        if self.values:
            lines += ["", "bound values:", *(f"  {name} = {value!r}" for name, value in self.values.items())]
        if self.added:
            lines += [
                "",
                "added, so that it means what Python means:",
                *(f"  {part}: {why}" for part, why in self.added),
            ]
        for name, reasons in self.refused.items():
            for reason in reasons:
                lines += ["", f"refused on {name}:", *(f"  {line}" for line in str(reason).splitlines())]
        if self.plan:
            lines += ["", "plan:", *(f"  {line}" for line in self.plan)]
            lines += ["", f"indexes: {', '.join(self.indexes) or 'none serves it'}"]
        lines += [line for each in self.advice for line in ("", each)]
        return "\n".join(lines)


def _dialects(engine: Any) -> dict[str, Any]:
    if engine is not None:
        return {dialect_name(engine.dialect): engine.dialect}
    # With these names a dialect needs no driver until it connects.
    names = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
    return {name: make_url(f"{url}://").get_dialect()() for name, url in names.items()}


def explain(query: Query, models: tuple[Any, ...], engine: Any) -> Explanation:
    """Explain a query for one engine, or for each supported database."""
    if engine is not None and not isinstance(engine, sa.Engine | sa.Connection):
        raise QueryError(
            f"{engine!r} is not an engine and not a connection of SQLAlchemy's",
            hint="In asyncio: await connection.run_sync(lambda plain: query.explain(Book, plain)).",
        )
    found = Explanation(repr(query))
    rows = tuple(map(sql.Entity, models))
    for name, dialect in _dialects(engine).items():
        try:
            translator = sql.Translator(dialect, lenient=True)
            condition = query.translate(translator, rows, positive=True)
        except Refused as refused:
            found.refused[name] = [refused]
            continue
        if translator.left:
            found.refused[name] = translator.left
            continue
        found.added = [(each.text, each.reason) for each in translator.notes]
        clause = sql.checked(condition, translator)
        statement = sa.select(*models).where(clause)
        compiled = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
        found.sql[name] = compiled.string
        found.values = dict(compiled.params)
        if engine is not None:
            found.plan = _plan(engine, name, compiled)
            found.indexes = _indexes(engine, models, found.plan)
            found.advice = advice(engine, models, clause, found.plan)
    return found


def _indexes(engine: Any, models: tuple[Any, ...], plan: list[str]) -> list[str]:
    """Return the indexes of the models' tables that a plan names, as spelled in the database."""
    words = set(re.findall(r"\w+", " ".join(plan)))
    inspector = sa.inspect(engine)
    found = []
    for table in dict.fromkeys(sa.inspect(model).selectable for model in models):
        if isinstance(table, sa.Table):
            names = [each["name"] for each in inspector.get_indexes(table.name, table.schema)]
            names.append(inspector.get_pk_constraint(table.name, table.schema)["name"])
            found += sorted(each for each in names if each in words)
    if any("USING INTEGER PRIMARY KEY" in line or "key PRIMARY" in line for line in plan):
        found.append("primary key")  # SQLite has no index of its own for it, and in MariaDB it has no name
    return found


def _plan(engine: Any, name: str, compiled: Any) -> list[str]:
    """Return the EXPLAIN output of a statement, with its values bound as in the query."""
    values = dict(compiled.params)
    for own, process in compiled._bind_processors.items():
        bind = compiled.binds[own]
        for key in (f"{own}_{at + 1}" for at in range(len(bind.value))) if bind.expanding else (own,):
            values[key] = process(values[key])
    parameters: Any = tuple(values[key] for key in compiled.positiontup) if compiled.positional else values
    word = "EXPLAIN QUERY PLAN" if name == "sqlite" else "EXPLAIN"
    with contextlib.nullcontext(engine) if isinstance(engine, sa.Connection) else engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{word} {compiled.string}", parameters).mappings().all()
    if name == "sqlite":
        return [str(row["detail"]) for row in rows]
    if name == "postgresql":
        return [str(next(iter(row.values()))) for row in rows]
    return [", ".join(f"{key} {value}" for key, value in row.items() if value is not None) for row in rows]
