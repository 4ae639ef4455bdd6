"""The application: imported by its name (``loading``), or several of them at their places (``mounted``), and its
interface found by its signature (``signature``)."""
