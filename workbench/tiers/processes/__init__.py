"""What runs on the tiers between a device and the cloud.

A process each, frames, mutual TLS, slow links.

A tier's process needs the standard library, numpy and ONNX Runtime, neither torch nor Ray. Leaves
which model runs where, and what is predicted of it, to `workbench.tiers.placement`.
"""
