"""What one worker does for a trial: the training loop, a user function or a program.

`run_trial` takes an order and a place to report to, trains, and returns how it ended. An error in
your code ends the trial, but not the worker. This package knows no Ray, no store and no study: its
callers lease workers, decide when to stop and choose the next configuration. Importing it loads no
torch.
"""
