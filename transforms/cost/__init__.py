"""What a GPU model costs: registers, cycles and bytes."""
