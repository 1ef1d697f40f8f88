"""Programs that train: starting them, reading them while they run, and ending all their processes.

Metrics are read from the program's usual output. Nothing here knows trials.
"""
