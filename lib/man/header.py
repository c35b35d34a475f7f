# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Reads a public header for the pages of the manual: functions with the comment above them or above
their group, structures, enumerations, constants, and the comments that stand alone. It knows the
form that t/abi/contracts.py and this folder ask of the headers, and no other C; what it does not
understand is an error.
"""

import re

TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<comment>/\*.*?\*/)"
    r"|(?P<directive>\#(?:\\\n|[^\n])*)"
    r"|(?P<guard>GLAKE_(?:BEGIN|END)_DECLS)"
    r"|(?P<declaration>[A-Za-z](?:[^;{]|\{.*?\n\})*?(?:;|(?<=\n\})))",
    re.S,
)
DEFINE = re.compile(r"#\s*define\s+(\w+(?:\([^)]*\))?)[ \t]+(.*)", re.S)
FUNCTION = re.compile(r"GLAKE_EXPORT\s+(.*?)(\w+)\s*\((.*)\);", re.S)
TYPEDEF = re.compile(r"typedef\s+(.*?)\(\*(\w+)\)\((.*)\);", re.S)
BODY = re.compile(r"(struct|enum)\s+(\w+)\s*\{(.*)\};", re.S)
MEMBER = r"/\*.*?\*/|\n[ \t]*\n|[^\s/][^%s/]*%s?"
CONTRACT = ("Thread:", "Blocks:", "Driver calls:")


class Unclear(Exception):
    """What the header says has not the form that is read here."""


class Entry:
    """One thing that a header declares, or a comment that stands alone."""

    def __init__(self, kind, name, header, comment=None, **more):
        self.kind, self.name, self.header, self.comment = kind, name, header, comment
        self.result = self.parameters = self.value = self.members = None
        self.__dict__.update(more)


class Comment:
    """The paragraphs of a comment, and what they say of results and of the contract."""

    def __init__(self, raw):
        self.parts, self.tail, self.classes = [], [], []
        self.value, self.errors, self.contract = None, [], {}
        for lines in paragraphs(raw):
            self.take(*kind_of(lines))

    def take(self, kind, content):
        if kind != "text":
            asked = self.tail and self.tail[-1].endswith(":")
            (self.classes if asked and kind == "list" else self.parts).append((kind, content))
            return
        said, contract = cut(content, CONTRACT[0])
        if contract:
            self.contract = split_contract(contract)
        match = re.search(r"(?:^|(?<=[.;:] ))Returns? ", said)
        if match:
            self.value, self.errors, tail = results(said[match.end() :])
            self.tail += [tail] if tail else []
            said = said[: match.start()].rstrip()
        if said:
            self.parts.append(("text", said))


def squeeze(text):
    return " ".join(text.split())


def cut(text, word):
    at = text.find(word)
    return (text, "") if at < 0 else (text[:at].rstrip(), text[at:])


def split_contract(text):
    found = re.split(r"(%s) " % "|".join(CONTRACT), text)
    return {found[i]: found[i + 1].strip() for i in range(1, len(found) - 1, 2)}


def paragraphs(raw):
    """The lines of a comment without its marks, in paragraphs."""
    body = re.sub(r"^/\*+[ \t]?|\s*\*/$", "", raw.strip())
    lines = [re.sub(r"^\s*\*[ ]?", "", line).rstrip() for line in body.split("\n")]
    group = []
    for line in lines + [""]:
        if line:
            group.append(line)
        elif group:
            yield group
            group = []


def kind_of(lines):
    """A paragraph is literal, a list of words with what they mean, or text."""
    if lines[0].startswith("\t"):
        return "literal", [line.expandtabs(8) for line in lines]
    if not re.match(r"\S[^\t]*\t+\S", lines[0]):
        return "text", squeeze(" ".join(lines))
    rows = []
    for line in lines:
        word, _, meaning = line.partition("\t")
        if word:
            rows.append([word, meaning])
        else:
            rows[-1][1] += " " + meaning
    return "list", [(word, squeeze(meaning)) for word, meaning in rows]


def balanced(text):
    """The length of the bracket at the beginning."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return at + 1
    raise Unclear(f"a bracket is not closed: {text}")


def first_error(text):
    """Where the first error value outside of brackets stands; -1: nowhere."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and re.match(r"-E[A-Z0-9]", text[at:]):
            return at
    return -1


def named_errors(names, reason):
    """Of "EA, EB or EC" those joined by "or" share the reason; the others before have none."""
    rows = [(re.findall(r"E[A-Z0-9]+", part), None) for part in names.split(",")]
    if reason:
        return rows[:-1] + [(rows[-1][0], reason)]
    return [([name], None) for row, _ in rows for name in row]


def results(text):
    """
    Of "0, or -EA (why), -EB or -EC (why). More." the value, the errors with their reasons and what
    comes behind. Without errors the first sentence is the value.
    """
    first = first_error(text)
    if first < 0:
        value, _, tail = text.partition(". ")
        return value.rstrip("."), [], tail
    value = re.sub(r"[,;]?( or)?\s*$", "", text[:first])
    errors, rest = [], text[first:]
    while True:
        match = re.match(r"-E[A-Z0-9]+(?:(?: or|,) -E[A-Z0-9]+)* ?", rest)
        if not match:
            raise Unclear(f"no error value where one should be: {rest}")
        rest, reason = rest[match.end() :], None
        if rest.startswith("("):
            size = balanced(rest)
            reason, rest = rest[1 : size - 1], rest[size:]
        errors += named_errors(match[0], reason)
        if rest.startswith(".") or not rest:
            return value, errors, rest[1:].strip()
        match = re.match(r"(, or|,| or) (?=-E)", rest)
        if not match:
            raise Unclear(f"neither an error value nor the end of the sentence: {rest}")
        rest = rest[match.end() :]


def members_of(body, end):
    """
    In order the members, (declaration, comment), the comments above members, ("", comment), and
    None for empty lines.
    """
    found, fresh, where = [], False, 0
    for match in re.finditer(MEMBER % (end, end), body, re.S):
        token = match[0]
        if not token.strip():
            found.append(None)
        elif token.startswith("/*"):
            text = squeeze(" ".join(" ".join(lines) for lines in paragraphs(token)))
            if fresh and "\n" not in body[where : match.start()]:
                found[-1] = (found[-1][0], text)
            else:
                found.append(("", text))
        else:
            found.append((squeeze(token.rstrip(";,")), None))
        fresh, where = not token.startswith("/*") and bool(token.strip()), match.end()
    return found


def split_parameters(text):
    text = squeeze(text)
    return [] if text == "void" else [part.strip() for part in text.split(",")]


def declared(text, header, comment):
    """The entry of one declaration; None for what no page needs."""
    match = FUNCTION.fullmatch(text)
    if match:
        return Entry("function", match[2], header, comment, result=squeeze(match[1]),
                     parameters=split_parameters(match[3]))
    match = TYPEDEF.fullmatch(text)
    if match:
        return Entry("typedef", match[2], header, comment, result=squeeze(match[1]),
                     parameters=split_parameters(match[3]))
    match = BODY.fullmatch(text)
    if match:
        end = ";" if match[1] == "struct" else ","
        return Entry(match[1], match[2], header, comment, members=members_of(match[3], end))
    if re.fullmatch(r"struct \w+;", text):
        return Entry("opaque", text[7:-1], header, comment)
    raise Unclear(f"neither function, type nor structure: {squeeze(text)[:80]}")


def constant(text, header, comment):
    match = DEFINE.fullmatch(text.replace("\\\n", " "))
    if not match:
        return None
    value, _, behind = match[2].partition("/*")
    behind = squeeze(re.sub(r"\*/$", "", behind.strip()))
    return Entry("constant", match[1], header, comment, value=squeeze(value), trailing=behind)


def read(name, code):
    """The entries of a header in their order."""
    entries, comment, at, end = [], None, 0, -1
    while at < len(code):
        match = TOKEN.match(code, at)
        if not match:
            raise Unclear(f"{name}: {squeeze(code[at : at + 60])}")
        kind, text, at = match.lastgroup, match[0], match.end()
        try:
            if kind == "space" and text.count("\n") > 1:
                if comment and not comment[1]:
                    entries.append(Entry("prose", "", name, comment[0]))
                comment = None
            elif kind == "comment" and not re.match(r"/\* SPDX", text):
                if end < 0 or "\n" in code[end : match.start()]:
                    comment = [Comment(text), False]
            elif kind in ("directive", "declaration"):
                make = constant if kind == "directive" else declared
                entry = make(text, name, comment and comment[0])
                if entry:
                    entries.append(entry)
                    end = at
                    if comment:
                        comment[1] = True
        except Unclear as why:
            raise Unclear(f"{name}: {why}") from why
    return entries
