"""What a page would show: its elements, their attributes and its texts."""

from html.parser import HTMLParser


class Markup(HTMLParser):
    """Fails where elements are not closed in their order. `rows` has the texts of each line of a table."""

    VOID = {"meta", "br", "img"}

    def __init__(self, markup: str):
        super().__init__()
        self.open, self.tags, self.texts, self.rows = [], [], [], []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()

    def all(self, name: str) -> list[dict]:
        """The attributes of each element of this name."""
        return [attrs for tag, attrs in self.tags if tag == name]

    @property
    def attributes(self) -> set[str]:
        return {name for _, attrs in self.tags for name in attrs}

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())
