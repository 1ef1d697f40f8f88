"""A first experiment for a script of the user, read from its source.

What it is asked for, what it prints and where it writes are guessed. The script is not changed.
"""
