"""Serves bundles over HTTP with batches, limits, a token, metrics, and updates without a pause.

It needs ONNX Runtime, Starlette and Uvicorn, but neither torch nor Ray.
`workbench.deploy.predictor` loads a model, and `workbench.deploy.feeds` checks columns.
"""
