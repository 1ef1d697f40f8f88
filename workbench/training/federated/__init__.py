"""Federated learning: who holds what, who takes part in a round, and what the server does.

`masks` and `server` are pure functions of numbers, in numpy. The rest runs on the workers of a
trial: `rounds` makes one round, `loop` one after the other.
"""
