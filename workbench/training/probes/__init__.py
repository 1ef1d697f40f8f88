"""Short measured trainings: timed steps, memory, learning rate tests, summaries of model and data.

`measurements` lists the kinds of measurements. Using the results is left to `performance` and
`advisor`.
"""
