"""What one worker does for a trial: the training loop, a user function or a program.

`run_trial` takes an order and a place to report to, trains, and returns how it ended; whatever goes
wrong in user code ends the trial, not the worker. It knows no Ray, no store and no study: leasing
workers, deciding when to stop and what to try next are left to those who call it. Importing this
loads no torch.
"""
