"""The operations for JSON documents, which interpret the text like Python. PostgreSQL's ``json`` keeps the text. SQLite
and MariaDB store text anyway. A number with a point or an exponent is a float, and any other number is an integer.
Integers of more than 64 bits are an error on SQLite.
"""

from __future__ import annotations

import sqlalchemy as sa

from kirsch_query.emit import bytewise, operation

_TOO_LARGE = "abs(-9223372036854775808)"


def _plain(x: str) -> str:
    """Return the text of a document on PostgreSQL; a string without its quotes."""
    return f"({x} #>> '{{}}')"


def _unquoted(x: str) -> str:
    return f"json_unquote({x})"


def _quoted(character: str) -> str:
    """Return a character as a JSON document on SQLite and MariaDB; NULL if there is none."""
    return f"CASE WHEN length({character}) > 0 THEN json_quote({character}) END"


def _character(x: str, at: str) -> str:
    """Return a character of a text on SQLite."""
    return f"substr({x} ->> '$', {at}, 1)"


def _is(x: str, name: str, then: str, more: str = "") -> str:
    """Return ``then`` for documents of one type on MariaDB; ``more`` handles other types."""
    return f"(CASE json_type({x}) WHEN '{name}' THEN {then}{more} END)"


# The document of a column. SQLite returns a number if the whole document is a number.
operation("json_root", None, sqlite=lambda x: f"(CASE typeof({x}) WHEN 'real' THEN format(char(37) || '!.17g', {x}) ELSE {x} END)",
           postgresql=lambda x: f"CAST({x} AS JSON)", mariadb=lambda x: x)  # fmt: skip
operation("json_key", None, sqlite=lambda x, y: f"""({x} -> ('$."' || {y} || '"'))""", postgresql=lambda x, y: f"({x} -> {y})",
          mariadb=lambda x, y: f"""json_extract({x}, concat('$."', {y}, '"'))""")  # fmt: skip
# An item of a list, or a character of a text, counted from the start.
operation(
    "json_item", None,
    sqlite=lambda x, n: f"(CASE json_type({x}) WHEN 'array' THEN {x} -> ('$[' || {n} || ']')"
        f" WHEN 'text' THEN {_quoted(_character(x, f'{n} + 1'))} END)",
    postgresql=lambda x, n: f"(CASE json_typeof({x}) WHEN 'array' THEN {x} -> {n}"
        f" WHEN 'string' THEN to_json(nullif(substr({_plain(x)}, {n} + 1, 1), '')) END)",
    mariadb=lambda x, n: _is(x, "ARRAY", f"json_extract({x}, concat('$[', {n}, ']'))",
        f" WHEN 'STRING' THEN {_quoted(f'substr({_unquoted(x)}, {n} + 1, 1)')}"),
)  # fmt: skip
# The same, counted from the end.
operation(
    "json_last", None,
    sqlite=lambda x, n: f"(CASE json_type({x}) WHEN 'array' THEN {x} -> ('$[#-' || {n} || ']')"
        f" WHEN 'text' THEN {_quoted(_character(x, f'-{n}'))} END)",
    postgresql=lambda x, n: f"(CASE json_typeof({x}) WHEN 'array' THEN {x} -> (-{n})"
        f" WHEN 'string' THEN to_json(nullif(left(right({_plain(x)}, {n}), CASE WHEN char_length({_plain(x)}) >= {n} THEN 1 ELSE 0 END), '')) END)",
    mariadb=lambda x, n: _is(x, "ARRAY", f"CASE WHEN json_length({x}) >= {n} THEN json_extract({x}, concat('$[', json_length({x}) - {n}, ']')) END",
        f" WHEN 'STRING' THEN {_quoted(f'substr({_unquoted(x)}, -{n}, 1)')}"),
)  # fmt: skip
operation("json_object", sa.Boolean(), sqlite=lambda x: f"(json_type({x}) = 'object')",
          postgresql=lambda x: f"(json_typeof({x}) = 'object')", mariadb=lambda x: f"(json_type({x}) = 'OBJECT')")  # fmt: skip
operation("json_none", sa.Boolean(), sqlite=lambda x: f"(coalesce(json_type({x}), 'null') = 'null')",
          postgresql=lambda x: f"(coalesce(json_typeof({x}), 'null') = 'null')",
          mariadb=lambda x: f"(coalesce(json_type({x}), 'NULL') = 'NULL')")  # fmt: skip
operation("json_text", sa.String(), sqlite=lambda x: f"(CASE json_type({x}) WHEN 'text' THEN {x} ->> '$' END)",
          postgresql=lambda x: f"(CASE json_typeof({x}) WHEN 'string' THEN {_plain(x)} END)",
          mariadb=lambda x: _is(x, "STRING", _unquoted(x)))  # fmt: skip
operation("json_bool", sa.Boolean(), sqlite=lambda x: f"(CASE json_type({x}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)",
          postgresql=lambda x: f"(CASE json_typeof({x}) WHEN 'boolean' THEN {_plain(x)} = 'true' END)",
          mariadb=lambda x: _is(x, "BOOLEAN", f"{_unquoted(x)} = 'true'"))  # fmt: skip
# Numbers. Booleans are integers, as in Python. MariaDB considers 3e0 an integer, and truncates beyond 65 digits without
# an error.
operation(
    "json_int", sa.BigInteger(),
    sqlite=lambda x: f"(CASE json_type({x}) WHEN 'integer' THEN"
        f" CASE typeof({x} ->> '$') WHEN 'integer' THEN {x} ->> '$' ELSE {_TOO_LARGE} END WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)",
    postgresql=lambda x: f"(CASE json_typeof({x}) WHEN 'number' THEN"
        f" CASE WHEN {_plain(x)} !~ '[.eE]' THEN CAST({_plain(x)} AS NUMERIC) END"
        f" WHEN 'boolean' THEN CASE {_plain(x)} WHEN 'true' THEN 1 ELSE 0 END END)",
    mariadb=lambda x: _is(x, "INTEGER", f"CASE WHEN {x} REGEXP '[.eE]' THEN NULL WHEN char_length({x}) > 60 THEN CAST(exp(710) AS DECIMAL)"
        f" ELSE CAST({x} AS DECIMAL(65, 0)) END", f" WHEN 'BOOLEAN' THEN {_unquoted(x)} = 'true'"),
)  # fmt: skip
operation(
    "json_float", sa.Double(), sqlite=lambda x: f"(CASE json_type({x}) WHEN 'real' THEN {x} ->> '$' END)",
    postgresql=lambda x: f"(CASE json_typeof({x}) WHEN 'number' THEN"
        f" CASE WHEN {_plain(x)} ~ '[.eE]' THEN CAST({_plain(x)} AS DOUBLE PRECISION) END END)",
    mariadb=lambda x: f"(CASE WHEN json_type({x}) IN ('INTEGER', 'DOUBLE') AND {x} REGEXP '[.eE]' THEN CAST({x} AS DOUBLE) END)",
)  # fmt: skip


def _length_sqlite(x: str) -> str:
    keys = f"(SELECT count(*) FROM json_each({x}))"
    return f"(CASE json_type({x}) WHEN 'text' THEN length({x} ->> '$') WHEN 'array' THEN {keys} WHEN 'object' THEN {keys} END)"


def _length_postgresql(x: str) -> str:
    keys = f"(SELECT count(*) FROM json_object_keys({x}))"
    return (
        f"(CASE json_typeof({x}) WHEN 'string' THEN char_length({_plain(x)})"
        f" WHEN 'array' THEN json_array_length({x}) WHEN 'object' THEN {keys} END)"
    )


def _length_mariadb(x: str) -> str:
    return _is(
        x, "STRING", f"char_length({_unquoted(x)})", f" WHEN 'ARRAY' THEN json_length({x}) WHEN 'OBJECT' THEN json_length({x})"
    )  # fmt: skip


operation("json_length", sa.Integer(), sqlite=_length_sqlite, postgresql=_length_postgresql, mariadb=_length_mariadb)
# True for true, for a number other than 0, and for a non-empty text, list or object.
operation(
    "json_true", sa.Boolean(),
    sqlite=lambda x: f"(CASE WHEN json_type({x}) IN ('integer', 'real', 'true') THEN {x} ->> '$' <> 0 ELSE {_length_sqlite(x)} > 0 END)",
    postgresql=lambda x: f"(CASE json_typeof({x}) WHEN 'boolean' THEN {_plain(x)} = 'true'"
        f" WHEN 'number' THEN CAST({_plain(x)} AS NUMERIC) <> 0 ELSE {_length_postgresql(x)} > 0 END)",
    mariadb=lambda x: f"(CASE WHEN json_type({x}) IN ('INTEGER', 'DOUBLE') THEN CAST({x} AS DOUBLE) <> 0"
        f" WHEN json_type({x}) = 'BOOLEAN' THEN {_unquoted(x)} = 'true' ELSE {_length_mariadb(x)} > 0 END)",
)  # fmt: skip


def _has_postgresql(x: str, y: str) -> str:
    items = f"SELECT 1 FROM json_array_elements({x}) AS items(part) WHERE json_typeof(part) = 'string' AND part #>> '{{}}' = {y}"
    keys = f"SELECT 1 FROM json_object_keys({x}) AS names(part) WHERE part = {y}"
    return (
        f"""(CASE json_typeof({x}) WHEN 'string' THEN strpos({_plain(x)} COLLATE "C", {y}) > 0"""
        f" WHEN 'array' THEN EXISTS ({items}) WHEN 'object' THEN EXISTS ({keys}) END)"
    )


def _has_sqlite(x: str, y: str) -> str:
    items = f"SELECT 1 FROM json_each({x}) AS part WHERE part.type = 'text' AND part.value = {y}"
    keys = f"SELECT 1 FROM json_each({x}) AS part WHERE part.key = {y}"
    return (
        f"(CASE json_type({x}) WHEN 'text' THEN instr({x} ->> '$', {y}) > 0"
        f" WHEN 'array' THEN EXISTS ({items}) WHEN 'object' THEN EXISTS ({keys}) END)"
    )


def _has_mariadb(x: str, y: str) -> str:
    def among(array: str) -> str:
        quoted = f"json_type(part.v) = 'STRING' AND {bytewise('json_unquote(part.v)')} = {bytewise(y)}"
        return f"EXISTS (SELECT 1 FROM json_table({array}, '$[*]' COLUMNS (v JSON PATH '$')) AS part WHERE {quoted})"

    return _is(
        x, "STRING", f"locate({bytewise(y)}, {bytewise(_unquoted(x))}) > 0",
        f" WHEN 'ARRAY' THEN {among(x)} WHEN 'OBJECT' THEN {among(f'json_keys({x})')}",
    )  # fmt: skip


operation("json_has", sa.Boolean(), sqlite=_has_sqlite, postgresql=_has_postgresql, mariadb=_has_mariadb)
