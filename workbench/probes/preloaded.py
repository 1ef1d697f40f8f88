"""What the process that programs are forked from has loaded, see `warm_process`."""

import workbench.data.preview
import workbench.models.layers
import workbench.performance.flops
import workbench.planning.settings
import workbench.probes.fake_steps
import workbench.training.assembly
import workbench.training.loading  # noqa: F401
