"""Decide where the parts of a model run: on devices, near them or in the cloud.

`tiers_file` describes the tiers and links. Queues, links, schedulers and simulation are pure
mathematics over measured times. `workbench.tiers.processes` starts processes on real tiers.
"""
