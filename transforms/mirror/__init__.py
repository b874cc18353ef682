"""The mirror: an attributed Python model becomes a Triton model."""

# These two modules register their handlers.
from ziggurat.transforms.mirror import expressions as expressions
from ziggurat.transforms.mirror import flow as flow
from ziggurat.transforms.mirror.library import library_model
from ziggurat.transforms.mirror.mirror import mirror

__all__ = ["library_model", "mirror"]
