"""Puts docstrings into the site in place of the names of the reference pages, in the site's own style.

Types lose their backticks, and [`Name`] becomes code.
"""

import re

import griffe

REFERENCE = re.compile(r"\[(`~?[\w.]+`)\](?![(\[])")


ENTRY = re.compile(r"^- `([\w.]+)`: .*$\n?", re.MULTILINE)


def on_page_markdown(markdown: str, page, **kwargs) -> str:
    """A hook of MkDocs: the entries of a reference page become the whole docstrings."""
    if not page.file.src_uri.startswith("reference/"):
        return markdown
    return ENTRY.sub(r"\n::: \1\n    options:\n      inherited_members: true\n", markdown)


class TransformersStyle(griffe.Extension):
    """For `mkdocstrings`, see mkdocs.yml."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring is None:
            return
        obj.docstring.value = REFERENCE.sub(lambda match: match[1].replace("~", ""), obj.docstring.value)
        for section in obj.docstring.parsed:
            if isinstance(section.value, list):  # parameters, attributes, what is returned or raised
                for item in section.value:
                    if isinstance(getattr(item, "annotation", None), str):
                        item.annotation = item.annotation.replace("`", "").replace("*", "")
