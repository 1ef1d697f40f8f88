"""Plots: what happened in a run, as pictures and as one page.

`series` turns events into columns that stay bounded, `prepare` turns columns and history into
exactly what a figure shows, `figures` draws it with plotly, `report` puts figures and tables on one
HTML page. The caller provides the events. The front end draws live curves in a browser, from the
same series. Importing this package does not load plotly: the first figure that is drawn loads it.
"""
