"""A plot of many points that a script draws, with a plot from the server in its place until then."""

from __future__ import annotations

from markupsafe import Markup

from tuner.api.pages.plots.frame import Heading
from tuner.api.pages.plots.svg import element


def live_plot(heading: Heading, src: str, fallback: Markup, caption: str) -> Markup:
    """Return a figure that `assets/plots.js` fills with the points of `src`, to hover over and to zoom into.

    Args:
        heading: Its title names the plot for screen readers.
        src: Address of the bytes of `points.py`; empty in static files, which show the fallback alone.
        fallback: Plot that is shown without scripts.
        caption: Text below the fallback, which says what it leaves out.
    """
    shown = element("div", fallback, element("p", caption, class_="plot-caption"), class_="plot-fallback")
    return element("figure", shown, class_="plot-live", aria_label=heading.title, data_plot_src=src or None)
