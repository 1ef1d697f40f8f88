"""Resolves an experiment and one configuration into the settings of a trial, without any `auto`.

Nothing here trains or measures. Measurements are arguments.
"""
