"""What travels to another cluster and back: jobs, commands, a user's code and its archive.

Submitting a run and reading its result in Python is left to `runs`.
"""
