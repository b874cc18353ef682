"""The mirror: an attributed Python model becomes a Triton model."""

# These three modules register their handlers.
from ziggurat.transforms.mirror import expression_ops as expression_ops
from ziggurat.transforms.mirror import flow_ops as flow_ops
from ziggurat.transforms.mirror import stops as stops
from ziggurat.transforms.mirror.library_models import library_model
from ziggurat.transforms.mirror.mirror import mirror

__all__ = ["library_model", "mirror"]
