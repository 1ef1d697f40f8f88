from __future__ import annotations

import subprocess
import sys


def test_configurations_are_checked_without_torch():
    program = (
        "import sys, workbench.models, workbench.models.configurations as c\n"
        "c.configure('resnet', {'depth': 14}); c.configuration_type('transformer')\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
