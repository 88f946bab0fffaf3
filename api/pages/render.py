"""Templates: content in, HTML out. All texts are escaped unless they were made as markup."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from tuner.api.pages import texts
from tuner.api.pages.links import Links
from tuner.api.pages.site import Content, Visitor
from tuner.version import __version__


def render(content: Content, links: Links, visitor: Visitor, page: str) -> str:
    """Return the HTML of a page.

    Args:
        page: name of the page, which the navigation marks as the current one.
    """
    values = {"title": content.title, "links": links, "visitor": visitor, "page": page, "version": __version__}
    return environment().get_template(content.template).render({**values, **content.values})


@cache
def environment() -> Environment:
    """Return the environment of the templates, with the filters of `texts.py` by their names."""
    made = Environment(
        loader=PackageLoader("tuner.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {name: getattr(texts, name) for name in texts.__all__}
    return made
