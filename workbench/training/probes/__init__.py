"""Short measured trainings.

Timed steps, memory, rising rates, and summaries of a model and its data.

What follows from the measurements is left to `performance` and `advisor`.
"""
