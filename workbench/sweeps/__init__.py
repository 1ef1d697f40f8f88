"""The driver of a run: it sends proposals to Ray Tune, receives results, and stores everything.

The study decides what to propose, the workers train, and the user interfaces display.

- Before the start: `preflight`, `plan_checks`, `measured_metrics`, `run_notes`, `forecast`,
  `fingerprints`, `warm_start`.
- Starting and driving: `launchers`, `driver_actor`, `driver`, `ledger`, `budget`, `conclusion`.
- Trials: `ray_tune`, `tune_internals`, `coordinator`, `trial_orders`, `trial_reports`,
  `trial_resources`, `code_versions`, `clones`.
- Plans and workers: `sweep_advisor`, `trial_plans`, `gpu_sharing`, `elastic`, `elastic_gain`.
- While it runs: `user_commands`, `run_alerts`, `monitor`, `retention`, `artifact_outage`.
"""
