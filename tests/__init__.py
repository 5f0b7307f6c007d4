"""The tests; a package, so that they can share strategies and one interface to the frameworks."""
