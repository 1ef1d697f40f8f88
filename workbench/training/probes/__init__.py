"""Short measured trainings: timed steps, memory, rising rates, summaries of model and data.

`measurements` lists what can be ordered. `performance` and `advisor` use the results.
"""
