"""Where trials are trained: warm worker processes, leased in gangs from one pool per Ray cluster.

`head` keeps one local Ray head alive and attaches to it; `pool` owns the workers and says who gets
them when; `worker` is the process that trains; `gang` is what a coordinator holds while its trial
runs. What a training does is left to `training`; which trial runs next is left to `sweeps`.
Ray is imported by `pool`, `worker` and `gang`, and by `head` only when it attaches.
"""
