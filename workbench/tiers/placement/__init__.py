"""Where the parts of a model run.

On devices, near them, or in the cloud, and what each choice costs.

`tiers_file` says which tiers and links there are; queues, links, schedulers and simulation are pure
mathematics over measured times. Starting processes on real tiers is left to
`workbench.tiers.processes`.
"""
