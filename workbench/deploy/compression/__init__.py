"""Smaller and faster models.

Pruning, low rank, quantisation, and the search that measures what they gain.

What can be compressed is found here, and one compression is carried out and measured as a trial.
Starting the run that searches, and exporting what it found, is left to `workbench.runs`.
"""
