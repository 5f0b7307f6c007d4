"""Lower: the one place where layouts meet arrays."""

from xlayout.lower.many import apply_many as apply_many
from xlayout.lower.run import call as call

__all__ = ["apply_many", "call"]
