"""Home, Coverage and Compare as files of a report: no forms, no addresses of a service, no empty links."""

from __future__ import annotations

import pytest
from helpers import A100, H200
from page_site import given, site_of
from stored import HERE, answered

from tuner.api.pages.links import Address, FileLinks
from tuner.api.pages.render import render
from tuner.api.pages.routes import READERS
from tuner.api.pages.site import Visitor
from tuner.db.store import Store
from tuner.records import Provenance


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["", "coverage", "compare"])
@pytest.mark.parametrize("has_pages", [False, True])
def test_they_stand_alone(store: Store, name: str, has_pages: bool) -> None:
    for card in (H200, A100):
        made = Provenance(card, HERE.environment, HERE.source, HERE.policy)
        answered(store, provenance=made)
    store.count_requests({("scale", "scale M=65 N=65 dtype=bf16", H200.id): 7})
    followed = list[Address]()

    def follow(address: Address) -> bool:
        followed.append(address)
        return has_pages or not address.page  # a report always has the home page

    links = FileLinks(follow)
    shown = render(READERS[name](site_of(store), given(), links), links, Visitor(lambda action: "token", True), name)
    for text in ('href=""', "<form", "hx-get", "compare.csv", "<script", 'href="#problems"'):
        assert text not in shown, text
    assert ("problem-" in shown) == has_pages
    assert {address.page for address in followed} >= {"", "coverage", "compare", "problem"}
