"""The local Ray head: one per user and machine, started when needed, attached to, ended when idle.

`local_head` starts and ends it, and lets it start processes ahead; `attachment` attaches a process
to it, or to another cluster, and notices its end; `keeper` is the process that owns it,
`head_start` what that runs, and `head_files` what they write; `ray_environment` reads and writes
the environment variables; `exposure` checks what others could reach; `ray_startup` makes the
processes of Ray start faster. The pool of workers that runs on it is left to `workers`.
"""
