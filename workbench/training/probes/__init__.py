"""Short measured trainings: timed steps, memory, rising rates, summaries of model and data.

`measurements` says what can be ordered, and `measuring` carries it out. What follows from the
measurements is left to `performance` and `advisor`.
"""
