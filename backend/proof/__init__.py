"""Proofs that two models are equal: the engine of the interpreter over the terms of a solver (z3)."""
