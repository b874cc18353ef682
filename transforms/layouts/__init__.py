"""Layouts: which thread holds which element, where a buffer has it, and the shuffles and accesses that this takes."""
