"""Federated learning: which client holds which samples, who takes part, and the server's step.

`server` has pure functions of numbers, in numpy. The rest runs on the workers of a trial: `rounds`
makes one round, and `loop` makes one round after another.
"""
