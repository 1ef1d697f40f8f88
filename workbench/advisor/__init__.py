"""The advisor: what to use, from what was measured.

Fitting and predicting are left to `performance`.
"""
