# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What the Python module sends to the host of PyTorch's, under the real PyTorch on the CPU: who decides
is tried here, and who moves is stood in for. Storages that are away hold other bytes than their own,
so that every use of one changes a result; results are compared to the last bit with those of the
same program without.

    spilled.py activations|optimizer SOURCE [ENVIRONMENT]

PyTorch is looked for in a Python environment, or in this interpreter.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

WHICH, SOURCE = sys.argv[1], os.path.abspath(sys.argv[2])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable


def has_torch():
    return not subprocess.run([PACKAGES, "-c", "import torch"], capture_output=True,
                              check=False).returncode


def main():
    tap.start()
    if not has_torch():
        print("1..0 # SKIP no PyTorch here: see t/doors/meson.build")
        return
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    env.update(PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1",
               PYTHONPATH=os.pathsep.join([SOURCE, os.path.dirname(tap.__file__)]))
    sys.stdout.flush()
    sys.exit(subprocess.run([PACKAGES, os.path.join(HERE, f"spilled_{WHICH}.py")], env=env,
                            check=False, timeout=280).returncode)


if __name__ == "__main__":
    main()
