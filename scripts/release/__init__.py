"""The commands of a release: `make version`, `make wheels`, `make release`, `make test-wheels`."""
