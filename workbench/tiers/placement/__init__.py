"""Decide where the parts of a model run: on devices, near them or in the cloud.

Queues, links, schedulers and simulation are pure mathematics over measured times.
`workbench.tiers.processes` starts processes on real tiers.

- The system: `tiers_file`, `machine_profile`, `assembly`, `system`.
- Where a model is cut: `graph_cut`, `cut_choice`, `cut_bundle`, `class_groups`.
- Links: `links`, `link_queues`, `sending_costs`.
- Queues: `queues`, `simulated_queues`, `known_queues`.
- Schedulers: `schedulers`, `policies`, `mapping`, `scheduler_plans`.
"""
