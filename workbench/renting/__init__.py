"""Machines that somebody rents: which to take for a run, what their launcher needs, how they would be shared.

`offers` compares the machines of a catalogue by what was measured of a run, `templates` writes the file that
a launcher, an operator or a batch system takes, `simulation` plays the rules of admission at any size under a
fake clock. Nothing is rented here, nothing runs, and neither torch nor ray nor optuna is loaded.
"""
