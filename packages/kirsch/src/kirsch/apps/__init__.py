"""The application: imported by its name (``loading``), and its interface found by its signature (``signature``)."""
