"""Loans, and the year of a book, which is unknown for the books that there are."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade():
    op.add_column("book", sa.Column("year", sa.Integer))
    op.create_table(
        "loan",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("book_id", sa.Integer, sa.ForeignKey("book.id", name="fk_loan_book_id"), nullable=False),
        sa.Column("reader", sa.String(100), nullable=False),
        sa.Column("due", sa.Date, nullable=False),
        sa.Column("returned", sa.Date),
    )


def downgrade():
    op.drop_table("loan")
    op.drop_column("book", "year")
