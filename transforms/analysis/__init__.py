"""Analyses of models that all ways down share."""
