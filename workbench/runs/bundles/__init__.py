"""Bundles: a trained model as a folder that needs nothing else.

Writing one from a trial, loading it in Python, and combining trials into an ensemble. How a model
becomes ONNX or another format is left to `deploy`.
"""
