# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Makes C of the style and the script of glakectl's report: a list of lines each, without comments
and indentation, and the hash by which the page allows its script and no other.
"""
import base64
import hashlib
import re
import sys
from pathlib import Path


def lines(path):
    text = re.sub(r"/\*.*?\*/", "", Path(path).read_text(encoding="ascii"), flags=re.S)
    return [line.strip() for line in text.splitlines() if line.strip()]


def literal(line):
    return '\t"' + line.replace("\\", "\\\\").replace('"', '\\"') + '",\n'


def main():
    style, script = map(lines, sys.argv[1:3])
    # as report_page.c writes it between the tags
    content = "\n" + "".join(line + "\n" for line in script)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    with open(sys.argv[3], "w", encoding="ascii") as file:
        file.write('#include "tool/report.h"\n')
        for name, rows in (("style", style), ("script", script)):
            file.write(f"\nconst char *const report_{name}[] = {{\n")
            file.writelines(map(literal, rows))
            file.write("\tNULL};\n")
        file.write(f'\nconst char report_script_hash[] = "sha256-{digest}";\n')


main()
