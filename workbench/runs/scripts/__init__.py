"""A first experiment for a script of the user, guessed from its source.

Its options, its metrics and its output folders are guessed. The script is not changed.

- The experiment: `first_experiment`, `option_domains`.
- Reading the source: `program_source`, `static_values`.
- Options: `script_options`, `declared_options`, `typed_options`, `configured_options`,
  `other_languages`, `script_help`.
- What the program does with them: `option_uses`, `option_conditions`.
- Metrics: `script_metrics`, `script_objective`.
"""
