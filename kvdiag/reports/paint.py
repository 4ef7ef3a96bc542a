"""Bold, colour and wrapping for terminal text; without colour every function is the identity."""

from __future__ import annotations

from collections.abc import Iterator

_ROOMY = 100
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


class Paint:
    """Styles text for one terminal: `enabled` says whether it takes colour, `width` is its columns."""

    def __init__(self, enabled: bool, width: int) -> None:
        self.enabled = enabled
        self.width = width

    def colour(self, text: str, name: str) -> str:
        """`text` in a colour; unknown names leave it as it is."""
        code = _CODES.get(name) if self.enabled else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def bold(self, text: str) -> str:
        """`text` in bold."""
        return self.colour(text, "bold")

    def dim(self, text: str) -> str:
        """`text` in faint."""
        return self.colour(text, "dim")

    def head(self, text: str, indent: str, taken: int = 0) -> Iterator[str]:
        """A head, whole where there is room for most, so that it can be searched; on a narrow terminal broken and indented.

        `taken` is how many columns stand before its first line.
        """
        line, room = "", self.width - taken if self.width < _ROOMY else len(text)
        for word in text.split(" "):
            if line and len(line) + 1 + len(word) > room:
                yield line
                line, room = indent + word, self.width
            else:
                line = f"{line} {word}" if line else word
        yield line

    def wrap(self, text: str, indent: str = "", *, dim: bool = False) -> Iterator[str]:
        """Lines of `text` broken at blanks, each behind `indent`."""
        room = max(20, self.width - len(indent))
        line = ""
        for word in text.split():
            if line and len(line) + 1 + len(word) > room:
                yield indent + (self.dim(line) if dim else line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        if line:
            yield indent + (self.dim(line) if dim else line)
