"""Write the reference of settings into docs/serving.md: `python tools/settings_table.py`."""

from pathlib import Path

from llamina.server.settings.reference import markdown

PAGE = Path(__file__).parents[1] / "docs" / "serving.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->\n"


def updated(page: str) -> str:
    """The page with the reference as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "the page has no place for the settings"
    return before + BEGIN + markdown() + END + after


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
