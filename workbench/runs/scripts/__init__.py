"""A first experiment for a script of the user, guessed from its source.

Its options, its metrics and its output folders are guessed. The script is not changed.
"""
