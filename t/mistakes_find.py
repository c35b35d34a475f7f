# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Where mistakes can be planted in a source file, and which of them are drawn. A small reader of C
that knows comments, texts, the heads of conditions and loops, and statements; it stands on how the
code of this tree is written.

    negated      the condition of an if or a while
    no store     an assignment or a count, on one line and without a declaration, is left out
    no call      a call whose result nobody uses is left out
    off by one   < and <=, except where one of the two is chosen by it, or becomes the other, or they are
                 known to differ;
                 + 1 and - 1, and numbers that something is compared with
    and/or       && and ||
"""

import collections
import random
import re

# What is said of a mistake is no part of it.
SAYING = re.compile(r"\b(?:\w*_)?(?:assert|error|error_native|error_back|warn|info|debug|log|"
                    r"log_wants)\s*\(")
BEFORE = re.compile(r"\s*(?:else\b|do\b|default\s*:|case\b[^:]*:|[a-z_]\w*\s*:(?!:)|"
                    r"(?P<head>if|while|for|switch|\w+_for_each\w*|\w+_foreach\w*)\s*(?=\())")
# Nothing is left of a condition or a lock that nobody waits for, whether it is ended or not; and one that is all
# zero is as good as one that was made. Where arguments lie on the stack nothing ends them.
CALL = re.compile(r"(?!(?:return|sizeof|if|while|for|switch|va_end|pthread_cond_destroy|"
                  r"pthread_mutex_destroy|glk_lock_fini)\b)(?!pthread_cond_init\([^;]*, NULL\))"
                  r"[a-z]\w*\s*(?=\()")
KEEPS = re.compile(r"\w*_(?:store|set|poke)(?:_\w+)?$")
STORE = re.compile(r"([^=<>!]*?)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)[^=]*$|[^=]*(?:\+\+|--)$")

# Two that are compared, and one of them that is chosen by it.
SIDE = re.compile(r"(?:^|[(,=]\s|[(\[]|\breturn\s)([\w.\[\]>-]+|[\w.\[\]>-]+ [-/] [\w.\[\]>-]+)\s$")
CHOICE = re.compile(r"\s([\w.\[\]>-]+(?: [-/] [\w.\[\]>-]+)?)"
                    r"\s\?\s([^?:(),;]+?)\s:\s([^?:(),;]+?)(?=[,;)}]|$)")
BOUND = re.compile(r"if \((?:[^()&|]+ && )?([^()&|]+) ([<>])=? ([^()&|]+)(?: && .*)?\)", re.S)
TOLD = re.compile(r"return (.+) ([<>])=? (.+)")
OTHER = re.compile(r"\bif \(([^()]+) != ([^()]+)\)\s*$")
CAST = re.compile(r"\((?:u?int\d+_t|size_t|unsigned|int)\)(?=\w)")
LOAD = re.compile(r"glk_(?:load|peek)_\w+\(&([\w.\[\]>-]+)\)")
KEEP = re.compile(r"^(\s*)glk_(?:store|poke)_\w+\(&([\w.\[\]>-]+),\s([^;{}=]+)\);")
BECOMES = re.compile(r"\s*([^;{}=]+?) = ([^;{}]+);(?!\s*else\b)")

Mistake = collections.namedtuple("Mistake", "file kind edits first last line where before after")


def masked(code):
    """Comments, texts and lines of the preprocessor become blanks; all else stays in its place."""
    def blank(match):
        said = re.sub(r"[^\n]", " ", match[0])
        return f"\"{said[2:]}\"" if match[0][0] == "\"" else said

    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|"
                  r"^[ \t]*#(?:\\\n|/\*.*?\*/|[^\n])*", blank, code, flags=re.S | re.M)


def closing(code, at):
    """Behind the bracket that closes the one at a place."""
    depth = 0
    for here in range(at, len(code)):
        depth += (code[here] in "([{") - (code[here] in ")]}")
        if not depth:
            return here + 1
    raise ValueError(f"no end of {code[at:at + 40]!r}")


def functions(code):
    for match in re.finditer(r"^\{.*?^\}", code, re.S | re.M):
        head = re.split(r"^[ \t]*$|;|^\}", code[:match.start()].rstrip(), flags=re.M)[-1]
        name = re.search(r"(?<!__attribute__)\b(?!__attribute__)(\w+)\s*\(", head)
        if name:
            yield name[1], match.start() + 1, match.end() - 1


def units(code, at, end):
    """The heads of conditions and loops, and the statements, as (kind, from, to)."""
    while at < end:
        match = BEFORE.match(code, at, end)
        if match:
            at = match.end()
            if match["head"]:
                yield match["head"], match.start("head"), closing(code, at)
                at = closing(code, at)
            continue
        at += len(code[at:end]) - len(code[at:end].lstrip())
        if at < end and code[at] in "{};":
            at += 1
            continue
        start = at
        while at < end and code[at] not in ";}":
            at = closing(code, at) if code[at] in "([{" else at + 1
        if at > start:
            yield "", start, at


def is_store(said):
    match = STORE.match(said)
    if not match or match[1] is None:
        return bool(match)
    bare = re.sub(r"\[.*?\]", "", match[1])
    return not re.search(r"\w\s+[*\w]", bare) and not bare.startswith(("return", "."))


def is_same(said, behind, m):
    """Whether < and <= come to the same, since both operands are what is chosen from: the lesser, the
    greater, or what is left; or one of them becomes the other."""
    left, bare = LOAD.sub(r"\1", said[:m.start()]), LOAD.sub(r"\1", said)
    bound, store = BOUND.fullmatch(bare), BECOMES.match(KEEP.sub(r"\1\2 = \3;", behind))
    if bound and store and len(left) == bound.start(2) and (
            {bound[1], bound[3]} == {store[1], store[2]}):
        return True
    left = SIDE.search(CAST.sub("", said[:m.start()]))
    right = CHOICE.match(CAST.sub("", said[m.end():]))
    if not left or not right:
        return False
    a, b, chosen = left[1], right[1], (right[2], right[3])
    return chosen in ((a, b), (b, a), (f"{a} - {b}", "0"), (f"{b} - {a}", "0"), ("0", f"{a} - {b}"),
                      ("0", f"{b} - {a}"))


def are_other(said, before, m):
    """Whether the two that are compared are known to be different where they are."""
    told, known = TOLD.fullmatch(said), OTHER.search(before)
    return bool(told and known and m.start() == told.start(2) and (
        " ".join(known[1].split()), " ".join(known[2].split())) == (told[1], told[3]))


def in_unit(code, kind, start, end):
    """Mistakes of a unit: (kind, edits)."""
    said = code[start:end]
    quiet = [(m.start() + start, closing(code, m.end() - 1 + start)) for m in SAYING.finditer(said)]
    if kind in ("if", "while"):
        at = code.index("(", start)
        yield "negated", [(at + 1, at + 1, "!("), (end - 1, end - 1, ")")]
    if not kind and not quiet:
        call = CALL.match(said)
        if call and closing(said, call.end()) == len(said):
            keeps = KEEPS.match(call[0].strip())
            yield "no store" if keeps else "no call", [(start, end, "")]
        elif "\n" not in said and is_store(said):
            yield "no store", [(start, end, "")]
    for pattern, what, make in (
            (r"(?<=\s)(?:<|>)(?=\s)", "off by one", lambda m: m[0] + "="),
            (r"(?<=\s)(?:<|>)=(?=\s)", "off by one", lambda m: m[0][0]),
            (r"(?<=[\w)\]]) [-+] 1\b(?![.<]| <<)", "off by one", lambda m: ""),
            (r"(?<=[=<>] )\d+(?=[\s);&|?:]|$)", "off by one", lambda m: str(int(m[0]) + 1)),
            (r"&&", "and/or", lambda m: "||"),
            (r"\|\|", "and/or", lambda m: "&&")):
        for m in re.finditer(pattern, said):
            at = start + m.start()
            if what == "off by one" and m[0] in ("<", ">", "<=", ">=") and (
                    is_same(said, code[end:], m) or are_other(said, code[:start], m)):
                continue
            if m[0][0].isdigit() and not re.search(r"(?:[=!<>]=|[\w)\]] [<>]) $", said[:m.start()]):
                continue
            if not any(a <= at < b for a, b in quiet):
                yield what, [(at, start + m.end(), make(m))]


def edited(code, edits):
    for start, end, new in reversed(edits):
        code = code[:start] + new + code[end:]
    return code


def mistakes_of(name, code):
    bare, seen = masked(code), collections.Counter()

    def line(at):
        return code.count("\n", 0, at) + 1

    for function, begin, finish in functions(bare):
        for head, start, end in units(bare, begin, finish):
            for kind, edits in in_unit(bare, head, start, end):
                low = code.rindex("\n", 0, edits[0][0]) + 1
                high = code.index("\n", edits[-1][1])
                there = [(a - low, b - low, new) for a, b, new in edits]
                before, after = (" ".join(text.split()) for text in (
                    code[low:high], edited(code[low:high], there)))
                seen[function, before, after] += 1
                nth = seen[function, before, after]
                where = function + (f"[{nth}]" if nth > 1 else "")
                yield Mistake(name, kind, edits, line(start), line(end), line(edits[0][0]), where,
                              before, after)


def drawn(found, seed):
    """All mistakes in the order in which they are drawn: each kind has the same chance."""
    dice, kinds = random.Random(seed), collections.defaultdict(list)
    for mistake in found:
        kinds[mistake.kind].append(mistake)
    for kind in sorted(kinds):
        dice.shuffle(kinds[kind])
    while kinds:
        kind = dice.choice(sorted(kinds))
        yield kinds[kind].pop()
        if not kinds[kind]:
            del kinds[kind]


def key_of(m):
    """As in t/mistakes.equal."""
    return f"{m.file}: {m.where}: {m.before} => {m.after}"


def shown(m):
    return f"{m.file}:{m.line}: {m.where}: {m.before} => {m.after}"
