"""Stepping through the programs of a launch, forward and back."""
