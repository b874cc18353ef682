"""Launching: from what the user passes to what a kernel takes."""
