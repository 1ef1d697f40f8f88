"""Thousands of inputs that no program would write: `python -m tests.faults input --examples 2000`.

Each is used as a user would; what does not end in a WorkbenchError is printed with the input.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings

from tests.builders.hostile import CASES, Case
from tests.faults.evidence import count_error


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults input", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="Inputs of each kind.")
    parser.add_argument("--only", choices=CASES, help="Try this kind of input only.")
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args(words)
    warnings.simplefilter("ignore")
    num_wrong = 0
    for name, case in CASES.items():
        if given_.only in (None, name):
            num_wrong += play(name, case, given_.examples, given_.seed)
    return 1 if num_wrong else 0


def play(name: str, case: Case, num_examples: int, seed: int) -> int:
    """Try inputs of one kind, print every kind of failure once, and return how many inputs
    failed.
    """
    from hypothesis import seed as seeded

    from workbench.foundation.errors import WorkbenchError

    ends: Counter[str] = Counter()

    @seeded(seed)
    @settings(
        max_examples=num_examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
    )
    @given(case.inputs)
    def use(drawn: object) -> None:
        import copy

        try:
            case.use(copy.deepcopy(drawn))
        except WorkbenchError:
            ends["refused"] += 1
        except Exception as error:  # what this looks for
            count_error(ends, error, f"{name}: {str(drawn)[:1500]!r}")
        else:
            ends["used"] += 1

    began_s = time.monotonic()
    use()
    wrong = sum(count for end, count in ends.items() if end not in ("used", "refused"))
    print(
        f"{name}: {ends.total()} inputs in {time.monotonic() - began_s:.0f} s, {ends['used']} used,"
        f" {ends['refused']} refused, {wrong} wrong",
        flush=True,
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
