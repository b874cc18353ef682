"""Tuning: `zg.autotune` and `zg.Config`."""
