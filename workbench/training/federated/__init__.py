"""Federated learning: who holds what, who takes part, what a server does, and rounds of them.

`masks` and `server` are pure functions of numbers, in numpy. The rest runs on the workers of a
trial: `rounds` makes one round, `loop` one after the other.
"""
