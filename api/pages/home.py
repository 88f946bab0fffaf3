"""The home page: what this service knows, in one glance."""

from __future__ import annotations

from tuner.api.pages.links import Links
from tuner.api.pages.site import Content, Query, Site


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the home page."""
    query.only()
    return Content("home.html", "Overview", {"answers": site.view.answers, "devices": site.view.devices()})
