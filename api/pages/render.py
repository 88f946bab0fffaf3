"""Templates: content in, HTML out. All texts are escaped unless they were made as markup."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from tuner.api.pages import texts
from tuner.api.pages.links import FileLinks, Links
from tuner.api.pages.site import Content, Visitor
from tuner.version import __version__


def render(content: Content, links: Links, visitor: Visitor, page: str) -> str:
    """Return the HTML of a page.

    Args:
        page: name of the page, which the navigation marks as the current one.
    """
    return environment().get_template(content.template).render(_values(content, links, visitor, page))


def render_live(content: Content, links: Links, visitor: Visitor, page: str) -> dict[str, str]:
    """Return the HTML of the live parts of a page by the id of their element: `live_state` is that of `live-state`."""
    template = environment().get_template(content.template)
    blocks = {name: block for name, block in template.blocks.items() if name.startswith("live_")}
    values = _values(content, links, visitor, page)
    return {name.replace("_", "-"): "".join(block(template.new_context(values))) for name, block in blocks.items()}


def _values(content: Content, links: Links, visitor: Visitor, page: str) -> dict[str, object]:
    """Return the values that a template shows: those of the content, and those that all pages have."""
    about = {"title": content.title, "links": links, "visitor": visitor, "page": page, "version": __version__}
    return {**about, **content.values}


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
    made.filters["ago"] = _ago
    return made


@pass_context
def _ago(context: Context, moment: str | None) -> Markup:
    """Return how long ago a time was; in a report, which is read later, the time itself."""
    links = context.get("links")
    return texts.when(moment) if isinstance(links, FileLinks) else texts.ago(moment)
