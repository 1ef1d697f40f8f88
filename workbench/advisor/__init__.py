"""Recommends plans, batches, learning rates and machines from measurements.

Nothing is trained here except on the workers that `measuring` leases. The laws of time and memory
are in `workbench.hardware.performance`.

- From an experiment to advice: `recommend`, `open_settings`, `plan_study`, `advice_from_findings`,
  `advice`, `stored_advice`, `advice_lines`, `advice_card`.
- Measuring: `measuring`, `plan_measurement`, `batch_finder`, `retiming`, `confirmation`, `race`.
- Plans: `plans`, `plan_variants`, `candidates`, `exchange_forecast`.
- Batches and rates: `batch_choice`, `next_run`, `rate_scaling`, `auto_priors`.
- Memory, workers and frameworks: `memory`, `worker_scaling`, `frameworks`.
- Language models: `language_models`, `fine_tuning_costs`, `adapter_rates`, `ladder`.
- What runs have measured: `speed_history`, `trial_speeds`.
- `workbench what-if`: `what_if`, `plan_tables`, `measurement_tables`.
"""
