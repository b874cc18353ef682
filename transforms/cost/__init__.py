"""The cost of a GPU model: registers, cycles and bytes."""
