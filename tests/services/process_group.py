"""Runs functions on worker processes that meet as the workers of a trial do, and stay warm between
calls.
"""

from __future__ import annotations

import atexit
import gc
import io
import itertools
import multiprocessing
import multiprocessing.process
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from workbench.training.strategies.worker_group import let_go, open_meeting_point

_CONTEXT = multiprocessing.get_context("forkserver")
# Each has loaded torch when it starts, and what training and dividing a model import of it.
_CONTEXT.set_forkserver_preload(
    [
        "workbench.training.probes.warm_process",
        "torch.distributed.tensor",
        "torch.distributed.fsdp",
        "torch._dynamo",
    ]
)
NAME = "worker of tests"
_workers: list[tuple[multiprocessing.process.BaseProcess, Any]] = []
_numbers = itertools.count()
MAX_WAIT_S = 580.0
"""Below the time limit of a test, after which the stacks of the workers would not be known."""


def run_together(function: Callable[..., Any], num_workers: int, *arguments: Any) -> list[Any]:
    """Call function(rank, num_workers, meeting, *arguments) in processes.

    Return what each returned.
    """
    meeting = f"{open_meeting_point('127.0.0.1')}/{next(_numbers)}"
    while len(_workers) < num_workers:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs,), name=NAME, daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is seen
        _workers.append((process, ours))
    for rank in range(num_workers):
        call = pickle.dumps((function, (rank, num_workers, meeting, *arguments)))
        _workers[rank][1].send((sys.path, call))
    try:
        answers = []
        for rank in range(num_workers):
            assert _workers[rank][1].poll(MAX_WAIT_S), f"rank {rank} does not answer"
            answers.append(_workers[rank][1].recv())
        for rank, (problem, _) in enumerate(answers):
            assert problem is None, f"rank {rank}: {problem}"
    except BaseException:
        _end()  # one that failed may not have left its group
        raise
    return [torch.load(io.BytesIO(written), weights_only=False) for _, written in answers]


def start_beside(
    function: Callable[..., Any], *arguments: Any
) -> tuple[multiprocessing.process.BaseProcess, Any]:
    """Call function(connection, *arguments) in a process that may be killed.

    Return it and the other end.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=function, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(connection: Any) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # else leaving a group looks through all that torch consists of
    while True:
        search_path, call = connection.recv()
        sys.path[:] = search_path
        try:
            function, arguments = pickle.loads(call)
            written = io.BytesIO()  # tensors of their own would be shared memory
            torch.save(function(*arguments), written)
            function = arguments = None
            let_go()  # the threads of a group that is kept take the processor from other tests
            gc.freeze()  # what was imported meanwhile
            connection.send((None, written.getvalue()))
        except BaseException:
            connection.send((traceback.format_exc(), None))


@atexit.register
def _end() -> None:
    for process, _ in _workers:
        process.kill()
    _workers.clear()
