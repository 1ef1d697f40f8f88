"""Programs that are forked from a process with their modules loaded behave as if Python had started
them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.training.probes import warm_process
from workbench.training.probes.child_process import query

pytestmark = pytest.mark.skipif(not warm_process.IS_POSSIBLE, reason="forks only on Linux")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the lines of a program in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_program(code: str, text: str = "", timeout_s: float = 120.0, **environment: str):
        Path("program_of_a_test.py").write_text(code)
        variables = {"PATH": os.environ["PATH"], **environment}
        return warm_process.run(
            "program_of_a_test", text, environment=variables, timeout_s=timeout_s
        )

    return run_program


def test_a_program_has_its_own_input_output_folder_environment_and_status(
    run, tmp_path: Path
) -> None:
    done = run(
        "import os, sys\nprint(sys.stdin.read(), os.getcwd(), sorted(os.environ))\n"
        "print('not found', file=sys.stderr)\nsys.exit(7)",
        text="Zürich",
        DATA="1",
    )
    assert done.returncode == 7
    assert done.stdout == f"Zürich {tmp_path} ['DATA', 'PATH']\n"
    assert done.stderr == "not found\n"


ANSWERS_WHAT_IS_LOADED = """
import sys
NAMES = ["torch", "torch._dynamo", "workbench.training.assembly"]
LOADED = [name in sys.modules for name in NAMES]
from workbench.training.probes.child_process import answer
answer(lambda experiment, question: LOADED)
"""
MODEL = Experiment(
    model="mlp", data="digits", objectives=[{"metric": "val_accuracy", "goal": "maximize"}]
)
FUNCTION = Experiment(train="json:dumps", objectives=[{"metric": "loss", "goal": "minimize"}])


@pytest.mark.parametrize(
    ("module", "experiment", "loaded"),
    [
        ("asked_plainly", FUNCTION, [False, False, False]),
        pytest.param("asked_plainly", MODEL, [True, False, True], marks=pytest.mark.slow),
        ("model_summary", MODEL, [True, True, True]),
    ],
)
def test_a_question_about_a_model_finds_torch_loaded_and_one_about_a_function_does_not(
    run, module: str, experiment: Experiment, loaded: list[bool]
) -> None:
    Path(f"{module}.py").write_text(ANSWERS_WHAT_IS_LOADED)
    if warm_process._template is not None:  # it has loaded what earlier programs needed
        warm_process._template.end()
        warm_process._template = None
    assert query(module, experiment, {}, purpose="nothing was said") == loaded


def test_a_module_that_was_loaded_before_is_run_once_and_without_a_warning(run) -> None:
    done = warm_process.run(
        "this", "", environment=dict(os.environ), timeout_s=120.0, load=("this",)
    )
    assert done.stdout.count("Namespaces are one honking great idea") == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("raise SystemExit('why')", 1, "why"),
        ("raise SystemExit", 0, ""),
        ("import os; os._exit(5)", 5, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
    ],
)
def test_every_end_has_the_status_that_python_gives_it(
    run, code: str, status: int, error: str
) -> None:
    done = run(code)
    assert done.returncode == status
    assert error in done.stderr


def test_nothing_that_a_program_imports_or_sets_reaches_the_next_one(run) -> None:
    run("import torch, turtledemo\ntorch.set_default_dtype(torch.float64)")
    seen = run("import sys, torch\nprint(torch.get_default_dtype(), 'turtledemo' in sys.modules)")
    assert seen.stdout == "torch.float32 False\n"


@pytest.mark.slow
def test_a_program_that_takes_too_long_is_killed_with_its_children(run, tmp_path: Path) -> None:
    code = (
        "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}\\n')\ntime.sleep(600)"
    )
    run("")  # so that the time does not go by while torch is loaded
    with pytest.raises(subprocess.TimeoutExpired):
        run(code, timeout_s=3.0)
    for pid in (tmp_path / "pids").read_text().split():
        wait_until(lambda pid=pid: not is_running(int(pid)))


def test_a_program_ends_with_the_process_that_waits_for_it(run, tmp_path: Path) -> None:
    waits = (
        "from workbench.training.probes import warm_process\n"
        "warm_process.run('program_of_a_test', '', environment={'PATH': ''}, timeout_s=600)"
    )
    (tmp_path / "program_of_a_test.py").write_text(
        "import os, time\nopen('pid', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(600)"
    )
    waiting = subprocess.Popen([sys.executable, "-c", waits], cwd=tmp_path)
    place = tmp_path / "pid"
    wait_until(lambda: place.exists() and place.read_text().endswith("\n"))
    waiting.kill()
    waiting.wait()
    wait_until(lambda: not is_running(int(place.read_text())))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_programs_run_side_by_side(run, tmp_path: Path) -> None:
    """Each waits for what the other one does first."""
    code = (
        "import sys, time\nfrom pathlib import Path\nmine, other = sys.stdin.read().split()\n"
        "Path(mine).touch()\nwhile not Path(other).exists(): time.sleep(0.01)"
    )
    Path("program_of_a_test.py").write_text(code)
    ended = []

    def one(text: str) -> None:
        done = warm_process.run(
            "program_of_a_test", text, environment=dict(os.environ), timeout_s=120.0
        )
        ended.append(done.returncode)

    threads = [threading.Thread(target=one, args=(text,)) for text in ("a b", "b a")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [0, 0]


@pytest.mark.slow
def test_after_the_process_that_is_forked_was_killed_the_next_program_starts_another(run) -> None:
    run("")
    template = warm_process._template
    assert template is not None
    template.process.kill()
    template.process.wait()
    assert run("print(1)").stdout == "1\n"
    assert warm_process._template is not template


def test_no_process_stays_when_the_program_that_asked_for_them_ends(tmp_path: Path) -> None:
    code = (
        "import os\nfrom workbench.training.probes import warm_process\n"
        "warm_process.run('string', '', environment=dict(os.environ), timeout_s=100.0)\n"
        "print(warm_process._template.process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    wait_until(lambda: not is_running(int(killed.stdout)))
