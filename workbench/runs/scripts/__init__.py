"""A first experiment for a script of the user, guessed from its source.

The script is not changed, and not run unless its source shows no options. In this order:

1. `program_source` reads the file and what it imports, and `other_python` what this Python cannot
   parse. `static_values` knows its constants.
2. Readers find the options. Declarations come first (`declared_options`, `typed_options`), then a
   configuration (`configured_options`), other languages (`other_languages`,
   `compiled_programs`), and at last `--help` (`script_help`). `script_options` says what an option
   is.
3. `option_uses` and `option_conditions` follow each option to its uses. They decide its choices,
   and whether it has an effect.
4. `script_metrics` and `script_objective` decide the objective, from what is printed and written.
5. `option_domains` decides what is searched: names first, then types and uses, at most ten.
6. `first_experiment` decides the command, and writes the file.
"""
