"""A first experiment for a script of the user, guessed from its source.

The script is not changed, and not run unless its source shows no options. In this order:

- Read the file and what it imports: `program_source`, `other_python` for source that this Python
  cannot parse, and `static_values` for what is known without running it.
- Find the options, of which declarations come first: `script_options` says what an option is.
  Then come `declared_options` and `typed_options`, a configuration (`configured_options`), other
  languages (`other_languages`, `compiled_programs`), and at last the help (`script_help`).
- Follow each option to its uses: `option_uses` and `option_conditions` decide its choices and
  whether it has an effect, `use_kinds` for what it is used.
- Read what is reported: `script_metrics` for the names in printed lines, `script_objective` for
  all that is printed, logged and written.
- Decide the objective: `objective_ranking`.
- Decide what is searched: `option_domains` gives domains by types and names, and the ten options
  with the highest scores are taken: `option_scores`.
- Decide the command, and write the file: `first_experiment`.
"""
