"""What the process that children are forked from has loaded."""

import sklearn.ensemble  # noqa: F401
import torch
import torch._subclasses.fake_tensor
import torch.utils.flop_counter

import workbench.data.preview
import workbench.models.layers
import workbench.performance.flops
import workbench.planning.settings
import workbench.probes.fake_steps
import workbench.training.assembly
import workbench.training.loading  # noqa: F401

torch.set_num_threads(1)
