"""Tuning: `zg.autotune`, `zg.heuristics` and `zg.Config`, and what `triton.autotune` has in common with them."""
