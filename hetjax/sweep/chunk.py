"""The file of one chunk, as zarr stores it: blosc, then a checksum."""

import os
from pathlib import Path

import google_crc32c

CHECKSUM = 4  # bytes at the end of a chunk
HEADER = 16  # bytes of blosc: ..., at 4 the size before compression, at 12 the size after it


def chunk_fault(file: Path, nbytes: int, full: bool) -> str:
    """What is wrong with a chunk of ``nbytes`` before compression; empty if nothing is. ``full``: reads all of it."""
    try:
        with file.open("rb") as chunk:
            head = chunk.read(HEADER)
            rest = chunk.read() if full else b""
            length = chunk.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not length:
        return "empty"
    if len(head) < HEADER or int.from_bytes(head[4:8], "little") != nbytes:
        return "not a chunk of this array"
    expected = int.from_bytes(head[12:16], "little") + CHECKSUM
    if length != expected:
        return f"{length} bytes long instead of {expected}"
    data = head + rest
    if full and google_crc32c.value(data[:-CHECKSUM]) != int.from_bytes(data[-CHECKSUM:], "little"):
        return "wrong checksum"
    return ""
