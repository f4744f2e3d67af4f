"""Every relative link of the README and the result pages leads to a file that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "training").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_links_are_found_at_all():
    assert LINK.findall("[a](b/c.md) ![d](e.png#f) [g](https://h) [i](#j)") == ["b/c.md", "e.png"]
    assert sum(len(LINK.findall(page.read_text())) for page in PAGES) > 50
