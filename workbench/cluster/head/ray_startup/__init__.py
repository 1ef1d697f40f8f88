"""A folder that the local Ray head puts first on the PYTHONPATH of its processes.

See its `sitecustomize`.
"""
