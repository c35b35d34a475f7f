# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Prints where a Python module goes that is installed under PREFIX: the folder there in which the
system's Python looks by itself, as /usr/local/lib/python3.11/dist-packages on Debian. If it looks
nowhere under PREFIX, that is the place where a Python of that prefix would look.

    python_dir.py PREFIX
"""

import os
import site
import sys
import sysconfig

prefix = sys.argv[1]
# a virtual environment is asked about itself, and its parent about all else
base = getattr(sys, "_base_executable", None)
if sys.prefix not in (sys.base_prefix, prefix) and base and base != sys.executable:
    os.execv(base, [base, "-I", *sys.argv])
looked = [*site.getsitepackages(), site.getusersitepackages()]
found = [path for path in looked if path.startswith((f"{prefix}/lib/", f"{prefix}/lib64/"))]
print(found[0] if found else sysconfig.get_path("purelib", "posix_prefix", {"base": prefix}))
