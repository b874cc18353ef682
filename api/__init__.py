"""Ziggurat."""
