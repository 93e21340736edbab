"""What a model says may not steer the terminal: control characters are shown as pictures of themselves."""

# \r is left out, \n and \t stay; ESC becomes ␛, and the codes of C1 what cannot be shown
PICTURES: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
PICTURES |= {0x0D: None, 0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """The text without control characters that a terminal would obey."""
    return text.translate(PICTURES)
