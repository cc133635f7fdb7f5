"""Pure: what is wrong with bytes that came from outside. Whoever reads them counts it by its kind and drops them."""


class Malformed(Exception):
    """Bytes that are no message. kind: a short word to count by, of a fixed set."""

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(text or kind)
        self.kind = kind
