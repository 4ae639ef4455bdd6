"""The commands that the app adds to ``manage.py``."""
