"""Lower: the one place where layouts meet arrays."""

from xlayout.lower.many import apply_many as apply_many
from xlayout.lower.run import call as call
from xlayout.lower.traced import trace as trace

__all__ = ["apply_many", "call", "trace"]
