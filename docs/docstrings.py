"""Shows docstrings in transformers' style as the site's own: types without backticks, [`Name`] as code."""

import re

import griffe

REFERENCE = re.compile(r"\[(`~?[\w.]+`)\](?![(\[])")


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
