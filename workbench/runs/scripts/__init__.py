"""A first experiment for a script of the user, guessed from its source.

The script is not changed, and not run unless its source shows no options. In this order:

- Read the file and what it imports: `program_source`, `other_python` for source that this Python
  cannot parse, and `static_values` for what is known without running it.
- Find the options, of which declarations come first: `script_options` says what an option is.
  Then come `declared_options` and `typed_options`, a configuration (`configured_options`), other
  languages (`other_languages`, `compiled_programs`), and at last the help (`script_help`).
  `option_defaults` has defaults from files.
- Follow each option to its uses: `option_uses` and `option_conditions` decide its choices and
  whether it has an effect, `use_kinds` for what it is used.
- Read what is reported: `reported_metrics` for all that is printed, logged and written,
  `script_metrics` for the names in printed lines, and `given_words` for names that functions are
  given by their callers.
- Decide the objective: `best_model_criteria` for the metric by which the program keeps its best
  model, `objective_ranking` for the order of all, and `script_objective` for the answer.
- Decide what is searched: `option_domains` gives domains by types and names, and the ten options
  with the highest scores are taken: `option_scores`.
- Decide the command, and write the file: `first_experiment`.
"""
