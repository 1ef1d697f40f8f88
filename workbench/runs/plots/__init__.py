"""Plots: what happened in a run, as pictures and as one page.

The caller provides the events. The front end draws live curves in a browser, from the same series.
Importing this package does not load plotly: the first figure that is drawn loads it.

- Events as columns that stay bounded: `series`, `run_data`, `curve_bands`.
- Exactly what a figure shows: `prepare`, `prepare_trials`, `prepare_search`, `prepare_learning`,
  `prepare_advice`, `prepare_comparison`, `parameter_axes`.
- Figures, drawn with plotly: `figures`, `figures_trials`, `figures_search`, `figures_advice`,
  `figures_comparison`, `figures_model`, `figures_offers`, `marks`, `colouring`, `theme`.
- Pictures without plotly: `svg`.
- The report: `report`, `report_answers`, `report_figures`, `report_tables`.
"""
