"""Pure: news that still has to be passed on.

What was sent least often goes first, then the larger, then the newer. News about the same thing replaces older news;
the oldest is dropped when there is too much.
"""

from dataclasses import dataclass
from typing import Final

from lepa.gossip.packets import PART_SIZE

NEWS_MAX: Final = 4096


@dataclass
class _News:
    key: str
    number: int
    data: bytes
    sent: int = 0

    def order(self) -> tuple[int, int, int]:
        return self.sent, -len(self.data), -self.number


class Broadcasts:
    """A bounded queue of news."""

    def __init__(self) -> None:
        self._news: dict[str, _News] = {}
        self._numbers = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._news)

    def __contains__(self, key: str) -> bool:
        return key in self._news

    def add(self, key: str, data: bytes) -> None:
        """Pass `data` on, in place of what was queued under the same key. "" is a key of its own each time."""
        self._numbers += 1
        key = key or f"\0{self._numbers}"
        self._news.pop(key, None)
        self._news[key] = _News(key, self._numbers, data)
        if len(self._news) > NEWS_MAX:
            self.dropped += 1
            del self._news[next(iter(self._news))]

    def take(self, room: int, transmits: int, count: int) -> list[bytes]:
        """At most `count` pieces that fit into `room` bytes as parts of a compound; each counts as sent once more."""
        taken: list[bytes] = []
        for news in sorted(self._news.values(), key=_News.order):
            if len(taken) >= count:
                break
            if len(news.data) + PART_SIZE > room:
                continue
            room -= len(news.data) + PART_SIZE
            taken.append(news.data)
            news.sent += 1
            if news.sent >= transmits:
                del self._news[news.key]
        return taken
