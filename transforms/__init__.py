"""Transforms: functions from model to model, from attribution to placement on a GPU."""
