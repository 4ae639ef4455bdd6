"""Authors and books."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade():
    op.create_table(
        "author",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
    )
    op.create_table(
        "book",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("copies", sa.Integer, nullable=False),
        sa.Column("author_id", sa.Integer, sa.ForeignKey("author.id", name="fk_book_author_id"), nullable=False),
    )
    op.create_index("ix_book_title", "book", ["title"])


def downgrade():
    op.drop_table("book")
    op.drop_table("author")
