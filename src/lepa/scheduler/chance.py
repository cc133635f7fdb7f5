"""Pure: chance from a seed, the same on every machine: splitmix64 (Steele, Lea and Flood, 2014)."""

from hashlib import blake2b

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB


def mix(seed: int, value: int = 0) -> int:
    """64 well-mixed bits of a seed and a value."""
    x = (seed + GAMMA * (value + 1)) & MASK
    x = ((x ^ (x >> 30)) * FIRST_FACTOR) & MASK
    x = ((x ^ (x >> 27)) * SECOND_FACTOR) & MASK
    return x ^ (x >> 31)


def text_bits(text: str) -> int:
    """64 bits that stand for a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
