"""Bench: xlayout beside the frameworks, in units of memcpy."""
