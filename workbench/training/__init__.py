"""What one worker does for a trial: the training loop, your function or your program.

`run_trial` takes an order and a function for reports, trains, and returns how it ended. An error in
your code ends the trial, but not the worker. Nothing here knows Ray, the store or the study.
Leasing workers, stopping trials and choosing configurations is left to the callers. Importing this
package does not load torch.
"""
