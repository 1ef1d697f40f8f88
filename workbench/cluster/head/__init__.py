"""The local Ray head: one per user and machine, started when needed, attached to, ended when idle.

- `local_head` starts and ends it, and lets it start processes ahead of time.
- `attachment` attaches a process to it or to another cluster, and notices its end.
- `keeper` is the process that owns it. It runs `head_start`.
- `head_files` reads and writes the files that describe it.
- `ray_environment` reads and writes the environment variables.
- `exposure` checks what other users could reach.
- `ray_startup` makes the processes of Ray start faster.

`workers` contains the pool of workers that runs on it.
"""
