"""Alembic runs this for each command: it connects, and applies the revisions in one transaction."""

import sqlalchemy as sa
from alembic import context

import library


def compared(item, name, kind, reflected, other):
    """Whether a table belongs to the library, where its database has others too."""
    return kind != "table" or name in library.Base.metadata.tables


engine = sa.create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection, target_metadata=library.Base.metadata, include_object=compared)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
