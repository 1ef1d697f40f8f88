"""What ended a program, in what Python and others really print on stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.store.history.failure_text import headline
from workbench.training.programs.last_error import MAX_CHARS, last_error, last_traceback

PYTHON = [
    ("raise ValueError('too wide\\nfor this layer')", "ValueError: too wide"),
    ("raise ValueError('\\n\\n  too wide')", "ValueError: too wide"),
    ("class OwnError(Exception): pass\nraise OwnError", "OwnError"),
    ("assert 1 == 2", "AssertionError"),
    (
        "try:\n  1 / 0\nexcept Exception as e:\n  raise RuntimeError('no result') from e",
        "RuntimeError: no result",
    ),
    ("try:\n  1 / 0\nexcept Exception:\n  {}['lr']", "KeyError: 'lr'"),
    (
        "class A:\n  def __del__(self): raise TypeError('late')\na = A()\nraise ValueError('real')",
        "ValueError: real",
    ),
    (
        (
            "import threading as t\nx = t.Thread(target=lambda: 1 / 0)\nx.start(); x.join()\n"
            "raise SystemExit('no data')"
        ),
        "no data",
    ),
    ("exec('def f(:')", "SyntaxError: invalid syntax"),
    (
        (
            "import argparse\np = argparse.ArgumentParser(prog='x')\np.add_argument('--lr',"
            " required=True)\np.parse_args()"
        ),
        "x: error: the following arguments are required: --lr",
    ),
    (
        (
            "import logging\ntry:\n  1 / 0\nexcept Exception:\n  logging.exception('caught')\n"
            "raise KeyError('k')"
        ),
        "KeyError: 'k'",
    ),
    (
        "import pydantic\nclass C(pydantic.BaseModel):\n  lr: float\nC(lr='x')",
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for C: lr: Input"
            " should be a valid number, unable to parse string as a number"
        ),
    ),
]


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What Python prints for each case; all of them are started before the first is awaited."""
    started = {
        code: subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for code, _ in PYTHON
    }
    return {code: process.communicate()[1] for code, process in started.items()}


@pytest.mark.parametrize(("code", "shown"), PYTHON)
def test_what_python_prints(printed: dict[str, str], code: str, shown: str) -> None:
    assert headline(last_error(printed[code])) == shown


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 8, in <module>
  |     main()
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 3, in load
    |     raise ValueError("no rows")
    | ValueError: no rows
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------
"""
HYDRA = """Error executing job with overrides: ['lr=2']
Traceback (most recent call last):
  File "/home/me/train.py", line 8, in main
    raise ValueError("lr is too high")
ValueError: lr is too high

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
INSTANTIATED = """Error executing job with overrides: []
Error in call to target '__main__.Net':
ValueError('bad')
full_key: model

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
CUDA = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    loss.backward()
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so it might be wrong.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
TORCHRUN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
[rank1]:     train()
[rank1]: ValueError: no data on rank 1
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 4711)
============================================================
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            GROUP,
            (
                "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: no"
                " rows"
            ),
        ),
        (HYDRA, "ValueError: lr is too high"),
        (INSTANTIATED, "Error in call to target '__main__.Net': ValueError('bad')"),
        (CUDA, "RuntimeError: CUDA error: device-side assert triggered"),
        (TORCHRUN, "ValueError: no data on rank 1"),
        (
            "Error in fit(x, lr) : could not converge\nCalls: main -> fit\nExecution halted\n",
            "Error in fit(x, lr) : could not converge",
        ),
        (
            (
                "Error in fit_a_model_with_a_long_name(x, lr = 0.1) : \n  no convergence\nExecution"
                " halted\n"
            ),
            "Error in fit_a_model_with_a_long_name(x, lr = 0.1) : no convergence",
        ),
        ("Error: object 'x' not found\nExecution halted\n", "Error: object 'x' not found"),
        (
            (
                "terminate called after throwing an instance of 'std::runtime_error'\n"
                "  what():  lr is too high\nAborted\n"
            ),
            "std::runtime_error: lr is too high",
        ),
        ("terminate called after throwing an instance of 'int'\nAborted (core dumped)\n", "int"),
        (
            "a.out: main.cpp:3: int main(): Assertion `x > 0' failed.\nAborted\n",
            "a.out: main.cpp:3: int main(): Assertion `x > 0' failed.",
        ),
        (
            (
                'Exception in thread "main" java.lang.IllegalStateException: no rows\n'
                "\tat Train.main(Train.java)\n"
            ),
            "java.lang.IllegalStateException: no rows",
        ),
        (
            (
                "/a/x.js:1\nthrow new Error('x')\n^\n\nTypeError: no rows\n    at f (/a/x.js:1:7)\n"
                "    at g\n\nNode.js v20.1.0\n"
            ),
            "TypeError: no rows",
        ),
        (
            (
                "thread 'main' panicked at src/main.rs:2:5:\nno rows\nnote: run with"
                " `RUST_BACKTRACE=1`\n"
            ),
            "thread 'main' panicked at src/main.rs:2:5: no rows",
        ),
        (
            (
                "thread 'main' panicked at 'no rows', src/main.rs:2:5\nnote: run with"
                " `RUST_BACKTRACE=1`\n"
            ),
            "thread 'main' panicked at 'no rows', src/main.rs:2:5",
        ),
        (
            (
                "panic: no rows\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/x.go:5 +0x1d\nexit"
                " status 2\n"
            ),
            "panic: no rows",
        ),
        ("ERROR: LoadError: no rows\nStacktrace:\n [1] f\n", "ERROR: LoadError: no rows"),
        ("train.sh: line 3: foo: command not found\n", "train.sh: line 3: foo: command not found"),
        (
            (
                "Usage: train [OPTIONS]\nTry 'train --help' for help.\n\nError: Missing option"
                " '--lr'.\n"
            ),
            "Error: Missing option '--lr'.",
        ),
        (
            (
                "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call"
                " first):\n"
            ),
            "Segmentation fault",
        ),
        ("epoch 1\r\nepoch 2\r\n", "epoch 2"),
        ("", ""),
    ],
)
def test_what_other_programs_print(text: str, shown: str) -> None:
    assert headline(last_error(text)) == shown


def test_further_lines_of_the_message_follow_and_farewells_do_not() -> None:
    assert last_error(CUDA).splitlines()[-1].startswith("Compile with `TORCH_USE_CUDA_DSA`")
    farewell = CUDA.replace("Compile with", "wandb: Synced\nCompile with")
    assert "wandb" not in last_error(farewell)


def test_the_traceback_begins_with_what_the_exception_was_raised_from(
    printed: dict[str, str],
) -> None:
    code = next(code for code, shown in PYTHON if shown == "RuntimeError: no result")
    text = last_traceback(f"epoch 1\n{printed[code]}") or ""
    assert text.startswith("Traceback (most recent call last)")
    assert "ZeroDivisionError" in text
    assert last_traceback("epoch 1\n") is None


@given(
    st.text(
        st.sampled_from("aT \n|+:'()-\t\rError: Traceback (most recent call last):"), max_size=300
    )
    | st.text()
)
def test_any_output_has_an_error_of_limited_length(text: str) -> None:
    assert len(last_error(text)) <= MAX_CHARS
    last_traceback(text)


def test_endless_output_is_read_in_time() -> None:
    for text in ("x" * 2**20, "a\n" * 2**18, "Error in f" + " " * 2**16, "panic: x\n" * 2**12):
        last_error(text)
