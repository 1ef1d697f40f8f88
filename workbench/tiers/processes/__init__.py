"""Tiers as real processes between a device and the cloud, with mutual TLS over slow links.

A tier's process needs the standard library, numpy and ONNX Runtime, neither torch nor Ray.
`workbench.tiers.placement` decides which model runs where, and predicts its times.

- One tier: `tier_process`, `tier_settings`, `tier`, `stage_model`, `next_tier`, `machines`,
  `scenes`.
- Between tiers: `transport`, `frames`, `features`, `relay`, `certificates`.
- Preparing: `placing`, `spreading`, `starting`.
- Measuring: `profiling`, `profile_runner`, `samples`, `requesting`, `measured_run`, `prediction`.
- What a tier reveals: `leak`, `decoders`, `sent_evidence`.
"""
