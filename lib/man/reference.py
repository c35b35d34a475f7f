# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Writes the manual's section 3 from the comments of the public headers, so that it cannot fall
behind them: one page for each group of the file `pages`, and for each function that does not give
its page the name a page that leads there.

	reference.py list PAGES				the names of all files, a line each
	reference.py write PAGES OVERVIEW FOLDER HEADER...	the files; OVERVIEW is glake.3

Every function, type and constant of the headers has to be on a page.
"""

import fnmatch
import re
import sys
from pathlib import Path

import header

WIDTH = 76


class Page:
    def __init__(self, name, title):
        self.name, self.title = name, title
        self.rows = {"functions": [], "types": [], "prose": [], "notes": [], "see": []}


def read_pages(path):
    pages = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        match = re.match(r"(glake_\w+): (.+)", line)
        if match:
            pages.append(Page(match[1], match[2]))
        elif line and not line.startswith("#"):
            kind, *words = line.split()
            pages[-1].rows[kind] += words
    return pages


def escape(text):
    text = text.replace("\\", "\\e").replace("'", "\\(aq").replace("^", "\\(ha")
    text = re.sub(r"(?<![\w)])-(?=[A-Z0-9>-])|-(?=>)", r"\\-", text)
    return re.sub(r"\B--(?=[a-z])", r"\\-\\-", text)


class Writer:
    """The text of one page, as mdoc(7)."""

    def __init__(self, known, homes):
        self.lines = []
        self.known, self.homes = known, homes
        rows = filter(None, known.types["glake_error_class"].members)
        self.classes = {text.split(" ")[0][len("GLAKE_ERROR_") :] for text, _ in rows}

    def put(self, line):
        self.lines.append(line)

    def inline(self, text, errors=False):
        """Fonts for what the headers name."""
        text = escape(text)
        word = r"\b[A-Z_]+\b" if errors else r"(?<!\")\b[A-Z]+_[A-Z_]+\b"
        text = re.sub(word, lambda match: "GLAKE_ERROR_" * (match[0] in self.classes) + match[0],
                      text)
        text = re.sub(r"`([^`]+)`", r"\\fI\1\\fP", text)
        text = re.sub(r"\*([a-z]+)\*", r"\\fI\1\\fP", text)
        text = re.sub(r"\b([a-z]+\.h)\b", self.header, text)
        text = re.sub(r"\bGLAKE_[A-Z0-9_]+\b", r"\\fB\g<0>\\fP", text)
        return re.sub(r"(?<!struct )(?<!enum )\b(glake_\w+)\b(?:\(\))?(?!\()", self.function, text)

    def function(self, match):
        return f"\\fB{match[1]}\\fP()" if match[1] in self.known.functions else match[0]

    def header(self, match):
        home = self.homes.get(match[0])
        return f"\\fB{home}\\fP(3)" if home else f"<glake/{match[0]}>"

    def text(self, text, errors=False):
        """Lines that are not too long, each sentence from a line of its own."""
        line = ""
        for word in self.inline(text, errors).split():
            if line and len(line) + 1 + len(word) > WIDTH:
                self.put(line)
                line = ""
            line += (" " if line else "\\&" * word.startswith((".", "'"))) + word
            if re.search(r"[.:!?]\)?$", word) and not word.startswith("..."):
                self.put(line)
                line = ""
        if line:
            self.put(line)

    def sentence(self, text, errors=False):
        """The same, from a capital letter to a full stop."""
        code = re.match(r"(struct|enum|sizeof|\w*_|[a-z]+[.(][a-z])", text)
        first = text[0] if code else text[0].upper()
        self.text(first + text[1:] + ("" if text.endswith(".") else "."), errors)

    def listed(self, rows, errors=False):
        self.put(".Bl -tag -width Ds")
        for tag, meaning in rows:
            name = f"GLAKE_ERROR_{tag}" if tag in self.classes and errors else tag
            self.put(f".It {escape(name)}" if " " in name else f".It Va {escape(name)}")
            self.sentence(meaning, errors)
        self.put(".El")

    def parts(self, parts):
        for i, (kind, content) in enumerate(parts):
            if kind == "literal":
                self.put(".Bd -literal")
                self.lines += [escape(line) or "\\&" for line in content]
                self.put(".Ed")
            elif kind == "list":
                self.listed(content)
            else:
                if i and kind == "text":
                    self.put(".Pp")
                self.text(content)

    def prototype(self, entry):
        kind = "typedef " if entry.kind == "typedef" else ""
        name = f'"(*{entry.name})"' if kind else entry.name
        words = " ".join(f'"{word}"' for word in entry.parameters or ["void"])
        self.put(f".Ft {chr(34)}{kind}{entry.result}{chr(34)}")
        self.put(f".Fn {name} {words}")

    def members(self, entry):
        """
        Members as lists. A comment above one of them is its own; one above several stands between
        two lists.
        """
        self.put(f".Ss {entry.kind} {entry.name}")
        if entry.comment:
            self.parts(entry.comment.parts)
        tag = "Vt" if entry.kind == "struct" else "Dv"
        is_open = shared = False
        for above, rows in groups_of(entry.members):
            if is_open and (shared or above and len(rows) > 1):
                self.put(".El\n.Pp")
                is_open = False
            shared = bool(above) and len(rows) > 1
            if shared:
                self.text(above)
            if not is_open:
                self.put(".Bl -tag -width Ds -compact")
            is_open = True
            for name, meaning in rows:
                self.put(f".It {tag} {escape(name)}")
                if above and not shared:
                    self.sentence(above)
                if meaning:
                    self.sentence(meaning)
        if is_open:
            self.put(".El")

    def constants(self, entries):
        self.put(".Ss Constants")
        self.put(".Bl -tag -width Ds -compact")
        last = None
        for entry in entries:
            self.put(f".It Dv {entry.name}")
            parts = entry.comment.parts if entry.comment and entry.comment is not last else []
            for _, text in parts:
                self.sentence(text)
            last = entry.comment
            if entry.trailing:
                self.sentence(entry.trailing)
            if not parts and not entry.trailing:
                self.text(f"It is {entry.value}.")
        self.put(".El")


def groups_of(members):
    """The comment above, or None, and the members that it stands above."""
    groups = [(None, [])]
    for row in members:
        if row is None:
            groups.append((None, []))
        elif not row[0]:
            groups.append((row[1], []))
        else:
            groups[-1][1].append(row)
    return [group for group in groups if group[1]]


def grouped(functions):
    """Functions that share a comment stand together: [(functions, comment)]."""
    groups = []
    for entry in functions:
        if not entry.comment:
            raise header.Unclear(f"{entry.name}: no comment stands above it")
        if groups and groups[-1][1] is entry.comment:
            groups[-1][0].append(entry)
        else:
            groups.append(([entry], entry.comment))
    return groups


def names_of(functions):
    return ", ".join(f"\\fB{entry.name}\\fP()" for entry in functions)


def write_head(out, page, functions, types, date):
    out.put('.\\" SPDX-License-' 'Identifier: LGPL-2.1-or-later')
    out.put('.\\" Made from the headers; what is wrong here is mended there.')
    out.put(f".Dd {date}")
    out.put(f".Dt {page.name.upper()} 3")
    out.put(".Os\n.Sh NAME")
    names = [page.name] + [entry.name for entry in functions if entry.name != page.name]
    for name in names[:-1]:
        out.put(f".Nm {name} ,")
    out.put(f".Nm {names[-1]}")
    out.put(f".Nd {page.title}")
    out.put(".Sh LIBRARY\nGPU memory library\n.Pq glake , Fl lglake")
    out.put(".Sh SYNOPSIS")
    for name in dict.fromkeys(entry.header for entry in functions):
        out.put(f".In glake/{name}")
    for entry in types + functions:
        if entry.kind in ("typedef", "function"):
            out.prototype(entry)
    out.put(".Pp\n.Dl cc program.c $(pkg-config \\-\\-cflags \\-\\-libs glake)")


def write_description(out, groups, types, prose, notes):
    out.put(".Sh DESCRIPTION")
    for entry in prose:
        out.parts(entry.comment.parts)
    single = len(groups) == 1 and not prose
    for functions, comment in groups:
        if not single:
            out.put(f".Ss {names_of(functions)}")
        out.parts(comment.parts)
    for entry in types:
        if entry.kind in ("struct", "enum"):
            out.members(entry)
        elif entry.kind == "typedef" and entry.comment:
            out.put(f".Ss {entry.name}")
            out.parts(entry.comment.parts)
    constants = [entry for entry in types if entry.kind == "constant"]
    if constants:
        out.constants(constants)
    for entry in notes:
        out.put(".Ss Notes")
        out.parts(entry.comment.parts)


def write_results(out, groups):
    out.put(".Sh RETURN VALUES")
    said = {}
    for functions, comment in groups:
        errors = ", or a negative `errno` value" if comment.errors else ""
        value = comment.value
        if not value and any(entry.result != "void" for entry in functions):
            raise header.Unclear(f"{functions[0].name}: its comment does not say what it returns")
        tail = tuple(re.sub(r"[^.]*:$", "", text).strip() for text in comment.tail)
        said.setdefault((f"{value}{errors}" if value else "nothing", tail), []).extend(functions)
    for i, ((value, tail), functions) in enumerate(said.items()):
        if i:
            out.put(".Pp")
        out.put(names_of(functions))
        out.text(f"{'return' if len(functions) > 1 else 'returns'} {value}.")
        for text in tail:
            out.text(text, errors=True)


def write_errors(out, groups, common):
    if not any(comment.errors for _, comment in groups):
        return
    out.put(".Sh ERRORS")
    for functions, comment in groups:
        if not comment.errors:
            continue
        if len(groups) > 1:
            out.put(f".Ss {names_of(functions)}")
        out.put(".Bl -tag -width Er")
        for names, reason in comment.errors:
            tags = " , ".join(f"Er {name}" for name in names)
            out.put(f".It Bq {tags}")
            if reason:
                out.sentence(reason, errors=True)
            elif names[0] in common:
                out.lines += common[names[0]]
            else:
                raise header.Unclear(f"{functions[0].name}: {names[0]} has no reason")
        out.put(".El")
        for text in comment.tail:
            if text.endswith(":"):
                out.put(".Pp")
                out.text(re.search(r"[^.]*:$", text)[0].strip())
        for _, rows in comment.classes:
            out.listed(rows, errors=True)


def write_contract(out, groups):
    out.put(".Sh THREADS, BLOCKING AND DRIVER CALLS")
    for functions, comment in groups:
        if len(groups) > 1:
            out.put(f".Ss {names_of(functions)}")
        out.put(".Bl -tag -width Ds -compact")
        for word in header.CONTRACT:
            if not comment.contract.get(word):
                raise header.Unclear(f"{functions[0].name}: its comment has no '{word}'")
            out.put(f".It Sy {word[:-1]}")
            out.sentence(comment.contract[word], errors=True)
        out.put(".El")


def write_see(out, page):
    out.put(".Sh SEE ALSO")
    pages = [f".Xr {name} 3" for name in sorted({"glake", *page.rows["see"]} - {page.name})]
    out.put(" ,\n".join(pages + [".Xr glake.conf 5"]))


def common_reasons(overview):
    """What glake(3) says of the errors that most functions share, as lines."""
    section = overview.split(".Sh ERRORS", 1)[1].split(".El", 1)[0]
    found = re.findall(r"^\.It Bq (Er .*)\n((?:(?!\.It ).*\n)*)", section, re.M)
    return {name: text.rstrip().split("\n") for names, text in found
            for name in re.findall(r"Er (\w+)", names)}


class Known:
    """What the headers have: functions, types with constants, comments that stand alone."""

    def __init__(self, headers):
        self.functions, self.types, self.prose = {}, {}, []
        for path in headers:
            for entry in header.read(path.name, path.read_text(encoding="utf-8")):
                if entry.kind == "prose":
                    self.prose.append(entry)
                elif entry.kind == "function":
                    self.functions[entry.name] = entry
                elif entry.kind != "opaque":
                    self.types[entry.name] = entry


def chosen(page, known):
    """The functions and the types of a page."""
    for name in page.rows["functions"]:
        if name not in known.functions:
            raise header.Unclear(f"{page.name}: no header declares {name}")
    functions = [known.functions[name] for name in page.rows["functions"]]
    types = []
    for pattern in page.rows["types"]:
        found = [entry for name, entry in known.types.items()
                 if fnmatch.fnmatchcase(name, pattern) and entry not in types]
        if not found:
            raise header.Unclear(f"{page.name}: no header has {pattern}")
        types += found
    return functions, types


def write_page(page, known, homes, overview):
    functions, types = chosen(page, known)
    groups = grouped(functions)
    out = Writer(known, homes)
    write_head(out, page, functions, types, re.search(r"^\.Dd (.*)", overview, re.M)[1])
    prose = [[entry for entry in known.prose if entry.header in page.rows[row]]
             for row in ("prose", "notes")]
    write_description(out, groups, types, *prose)
    write_results(out, groups)
    write_errors(out, groups, common_reasons(overview))
    write_contract(out, groups)
    write_see(out, page)
    return "\n".join(out.lines) + "\n", {entry.name for entry in functions + types}


def write(pages, overview, folder, headers):
    known, homes, shown = Known(headers), {}, set()
    for page in pages:
        for name in page.rows["functions"]:
            if name in known.functions:
                homes.setdefault(known.functions[name].header, page.name)
    for page in pages:
        text, names = write_page(page, known, homes, overview)
        shown |= names
        (folder / f"{page.name}.3").write_text(text, encoding="utf-8")
        for name in page.rows["functions"]:
            if name != page.name:
                alias = f".so man3/{page.name}.3\n"
                (folder / f"{name}.3").write_text(alias, encoding="utf-8")
    taken = {name for page in pages for name in page.rows["prose"] + page.rows["notes"]}
    absent = sorted({*known.functions, *known.types} - shown)
    absent += sorted({entry.header for entry in known.prose} - taken)
    if absent:
        raise header.Unclear(f"on no page of lib/man/pages: {' '.join(absent)}")


def main(command, listed, *rest):
    pages = read_pages(listed)
    if command == "list":
        names = [page.name for page in pages]
        names += [name for page in pages for name in page.rows["functions"] if name != page.name]
        print("\n".join(f"{name}.3" for name in names))
        return
    overview, folder, *headers = map(Path, rest)
    write(pages, overview.read_text(encoding="utf-8"), folder, headers)


try:
    main(*sys.argv[1:])
except header.Unclear as why:
    sys.exit(f"reference.py: {why}")
