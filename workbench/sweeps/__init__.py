"""The driver of a run: it sends proposals to Ray Tune, receives results, and stores everything.

`preflight` rejects experiments that cannot work, before anything starts. `launchers` start a
`driver`. The driver gives its orders to Tune through thin adapters, and a `coordinator` carries out
each order on leased workers. The study decides what to propose, the workers train, and the user
interfaces display.
"""
