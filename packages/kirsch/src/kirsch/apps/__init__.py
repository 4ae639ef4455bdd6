"""Applications: importing one by its name (``loading``), mounting several (``mounted``), and detecting the interface
of one by its signature (``signature``)."""
