"""The tests; a package, so that they can share strategies and faces of the frameworks."""
