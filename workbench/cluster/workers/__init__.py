"""Where trials are trained: warm worker processes, leased in gangs from one pool per Ray cluster.

`pool` owns the workers and decides who gets them when, by the rules in `admission`; `worker` is the
process that trains; `gang` is what a coordinator holds while its trial runs; `liveness` and
`node_monitors` watch the nodes. The local Ray head is left to `head`, the training itself to
`training`, and the choice of the next trial to `sweeps`. `admission`, `capacity` and
`memory_baseline` work without Ray. The others import it.
"""
