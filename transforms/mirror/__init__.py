"""The mirror: an attributed Python model becomes a Triton model."""

from ziggurat.transforms.mirror.mirror import mirror

__all__ = ["mirror"]
