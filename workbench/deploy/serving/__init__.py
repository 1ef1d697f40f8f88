"""Bundles answered over HTTP: batches, limits, a token, metrics, and newer bundles without a pause.

Needs ONNX Runtime, Starlette and Uvicorn, neither torch nor Ray. Leaves loading a model and
checking columns to `workbench.deploy.predictor` and `workbench.deploy.feeds`, and what a terminal
shows to the command line.
"""
