"""What one worker does for a trial: the training loop, your function or your program.

`run_trial` takes an order and a function for reports, trains, and returns how it ended. An
error in your code ends the trial, but not the worker. Nothing here knows Ray, the store or the
study. Leasing workers, stopping trials and choosing configurations is left to the callers.
Importing this package does not load torch.

- A trial: `trial`, `worker_task`, `outcome`, `attempt_events`, `ranks`, `checkpoint`,
  `kept_attachments`.
- The loop: `assembly`, `loop`, `step_window`, `optimizers`, `schedules`, `evaluation`.
- Data on its way to the device: `loading`, `loaders`, `tensor_source`, `device`.
- Before the first step: `first_batch`, `loss_and_metrics`, `loss_division`.
- Models that are fitted: `fitting`.
- Your function: `functions`, `policy`.
- Your program: `program_trial`, `mirrored_folder`.
- After the training: `trained_model`, `ensembles`, `lm_eval_tasks`.
"""
