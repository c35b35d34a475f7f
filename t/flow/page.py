# SPDX-License-Identifier: LGPL-2.1-or-later
"""A page of HTML as the parser of Python sees it, for tests of glakectl's report."""
import html.parser
import json
import subprocess

VOID = {"meta", "input", "br", "img", "link"}


def has_matplotlib():
    """Whether the Python that glakectl starts can draw."""
    return not subprocess.run(["python3", "-c", "import importlib.util as i, sys; sys.exit(not i.find_spec('matplotlib'))"], check=False).returncode


class Page(html.parser.HTMLParser):
    """Elements in order, the tables, the text, and whatever is wrong with how tags are nested."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.wrong, self.open = [], [], []
        self.texts = {}  # of the elements of a name, one after the other
        self.tables, self.row = {}, None
        self.feed(text)
        self.close()
        self.wrong += [f"<{name}> is not closed" for name in self.open]

    def handle_starttag(self, tag, attrs):
        if len(dict(attrs)) != len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> where {self.open[-1:]} is open")
            return
        self.open.pop()
        if tag in ("th", "td"):
            table = self.tables.setdefault(self.texts["caption"][-1], [])
            if tag == "th" and self.texts[tag][-1] and "thead" not in self.open:
                table.append([])
            if table:
                table[-1].append(self.texts[tag][-1].replace("\xa0", " "))

    def handle_data(self, data):
        for name in set(self.open):
            self.texts[name][-1] += data

    def of(self, name):
        """The attributes of the elements of a name."""
        return [attrs for tag, attrs in self.elements if tag == name]

    def text(self):
        return " ".join(self.texts["main"][0].replace("\xa0", " ").split())

    def data(self):
        """The figures that its script reads."""
        kinds = [attrs.get("type") for attrs in self.of("script")]
        return json.loads(self.texts["script"][kinds.index("application/json")])

    def script(self):
        kinds = [attrs.get("type") for attrs in self.of("script")]
        return self.texts["script"][kinds.index(None)]

    def cards(self):
        """The figures at the top, by their names."""
        values = [text.replace("\xa0", " ") for text in self.texts["dd"]]
        return dict(zip(self.texts["dt"], values))
