"""Warm worker processes that train trials, leased in gangs from one pool per Ray cluster.

- `pool` owns the workers and leases them by the rules in `admission`.
- `worker` is the process that trains.
- `gang` is a coordinator's view of its workers while its trial runs.
- `nodes` and `node_monitors` watch the nodes.

`head` contains the local Ray head, `training` the training itself, and `sweeps` the choice of the
next trial. `admission` works without Ray.
"""
