"""Programs that train: started, read while they run, and ended with everything that they have
started.

Metrics are read from what a program writes anyway. Nothing here knows trials: the arguments come
from outside, and what becomes of the metrics is left to those who follow a program.
"""
