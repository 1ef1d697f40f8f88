"""Rented machines: which to choose for a run, files that launch them, and a simulated cluster.
`offers` compares the machines of a catalogue by what was measured of a run, and `recommendation`
puts the result into words. `ray_launcher`, `kuberay`, `slurm` and `skypilot` write the file that a
launcher, an operator, a batch system or SkyPilot takes. `simulation` applies the rules of admission
to a cluster of any size under a simulated clock. Nothing is rented or run here, and neither torch
nor ray nor optuna is loaded.
"""
