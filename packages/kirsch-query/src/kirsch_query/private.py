"""The private names of SQLAlchemy that this package reads or overrides, because there is no public equivalent.

SQLAlchemy may change them in any release, so ``pyproject.toml`` has an upper bound. A test compares this list with the
source of the package and with SQLAlchemy; ``make test-query-oldest`` runs the tests with the oldest version.
"""

from __future__ import annotations

PRIVATE = {
    # The keys of SQLAlchemy's cache of compiled statements, and its copies of statements (cache.py).
    "sqlalchemy.sql.elements:BindParameter": ("_anon_map_key", "_identifying_key"),
    "sqlalchemy.sql.elements:ClauseElement": ("_annotations", "_clone", "_from_objects", "_propagate_attrs"),
    "sqlalchemy.sql.elements:ColumnElement": ("_negate",),
    "sqlalchemy.sql.base:Generative": ("_generate",),
    "sqlalchemy.sql.cache_key:HasCacheKey": ("_gen_cache_key",),
    "sqlalchemy.sql.functions:FunctionElement": ("_copy_internals", "_has_args"),
    "sqlalchemy.sql.selectable:Select": ("_correlate_except", "_execute_on_connection", "_where_criteria"),
    "sqlalchemy.engine.base:Connection": ("_execute_clauseelement",),
    # The argument type of a function that with_loader_criteria() calls; it is refused (terms.py).
    "sqlalchemy.orm.util:_WrapUserEntity": (),
    # The attributes of a column's type (kinds.py) and of a compiled statement (explain.py).
    "sqlalchemy.sql.sqltypes:Enum": ("_sort_key_function",),
    "sqlalchemy.sql.type_api:TypeEngine": ("_variant_mapping",),
    "sqlalchemy.sql.compiler:SQLCompiler": ("_bind_processors",),
    # The consequences of a flush (pending.py).
    "sqlalchemy.orm.mapper:Mapper": ("_is_orphan",),
    "sqlalchemy.orm.state:InstanceState": ("_orphaned_outside_of_session",),
    "sqlalchemy.orm.relationships:RelationshipProperty": ("_reverse_property",),
}
"""The names by the class that has them."""
