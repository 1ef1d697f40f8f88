"""A program that states its speed, or does not, as its first argument says.

Its second is the batch.
"""

from __future__ import annotations

import sys
import time


def main(kind: str, batch: int, rate: float = 0.1) -> None:
    match kind:
        case "trains":
            for step in range(1, 500):
                time.sleep(0.01)
                print(f"loss={1 / (step * rate)} steps_per_s=100", flush=True)
        case "fast":
            print("loss=1 samples_per_s=1", flush=True)
            while True:
                time.sleep(0.005)
                print(f"loss=1 samples_per_s={batch * 100}", flush=True)
        case "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        case "slow":
            print("loss=1")
        case "silent":
            time.sleep(600)
        case "fails":
            raise ValueError("boom")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))
