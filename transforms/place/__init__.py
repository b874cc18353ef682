"""Placement: a Triton model becomes a GPU model, in which every tensor has a layout."""
