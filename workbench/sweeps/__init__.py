"""The driver of a run: it sends proposals to Ray Tune, receives results, and stores everything.

`preflight` rejects experiments that cannot work before anything starts, and `launchers` start a
`driver`. The
driver passes orders to Tune through thin adapters, and a `coordinator` carries out each one on
leased workers. What to propose is left to the study, training to the workers, display to the user
interfaces.
"""
