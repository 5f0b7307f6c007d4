"""Lower: the one place where layouts meet arrays."""

from xlayout.lower.run import apply as apply
from xlayout.lower.run import call as call
from xlayout.lower.traced import trace as trace

__all__ = ["apply", "call", "trace"]
