"""The training whose start is measured.

It does nothing but report, after importing torch where requested.
"""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float, default=0.5)
parser.add_argument("--torch", action="store_true")
options = parser.parse_args()
if options.torch:
    import torch

    options.x = torch.tensor(options.x).item()
print(f"loss={(options.x - 0.3) ** 2:.6f}", flush=True)
