"""Pure: unpacks what peers compressed: LZW as Go's compress/lzw writes it, low bits first, literals of 8 bits.

Code 256 clears the table, 257 ends; codes begin with 9 bits and grow to 12, as late as possible, unlike in TIFF. What
this side sends is never compressed: packets are small, and a state is sent once in half a minute.
"""

from typing import Final

from lepa.gossip.errors import Malformed

CLEAR: Final = 256
END: Final = 257
WIDTH_FIRST: Final = 9
WIDTH_MAX: Final = 12


def unpack(data: bytes, limit: int) -> bytes:
    """The plain bytes. Raises Malformed for a stream that is broken or gives more than `limit` bytes."""
    out = bytearray()
    table: dict[int, bytes] = {}
    width, highest, last = WIDTH_FIRST, END, b""
    bits = held = 0
    for byte in data:
        bits |= byte << held
        held += 8
        if held < width:
            continue
        code = bits & ((1 << width) - 1)
        bits >>= width
        held -= width
        if code == END:
            return bytes(out)
        if code == CLEAR:
            table, width, highest, last = {}, WIDTH_FIRST, END, b""
            continue
        piece = _piece(code, table, highest, last)
        if last and highest < 1 << WIDTH_MAX:
            table[highest] = last + piece[:1]
        out += piece
        if len(out) > limit:
            raise Malformed("size", f"unpacks to more than {limit} bytes")
        last = piece
        highest += 1
        if highest >= 1 << width:
            if width == WIDTH_MAX:
                last, highest = b"", highest - 1
            else:
                width += 1
    raise Malformed("compress", "the compressed stream does not end")


def _piece(code: int, table: dict[int, bytes], highest: int, last: bytes) -> bytes:
    """What a code stands for; the one that is just being made is the last piece and its own first byte."""
    if code < CLEAR:
        return bytes([code])
    if code in table:
        return table[code]
    if code == highest and last:
        return last + last[:1]
    raise Malformed("compress", f"code {code} is not in the table")
