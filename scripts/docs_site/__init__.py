"""The documentation site: collects the pages of the repository, adds those that are made from data, and runs MkDocs."""
