"""Deploys trained models: export to ONNX, compression, measurement on a device, and serving.

Works on bundles, the folders that an export writes. Leaves finding the trial of a run, and
launching the runs that search a compression, to `workbench.runs`. The ensemble of an AutoML result
to `workbench.runs.automl`.
"""
