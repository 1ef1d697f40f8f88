"""Smaller and faster models.

Pruning, low rank, quantisation, and the search that measures what they gain.

A trial carries out one compression and measures it. `workbench.runs` starts the run that searches,
and exports its result.
"""
