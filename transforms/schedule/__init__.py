"""The schedule of a GPU model: loads ahead of their uses, and roles of warps."""
