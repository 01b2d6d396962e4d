"""Files that survive a power cut: written aside, flushed to the disk, then renamed, then the folder flushed.

In an object store putting an object is all of that in one step.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hetjax.sweep.place import is_remote


def sync_file(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to the disk."""
    if is_remote(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(below: Path, root: Path) -> None:
    """Flushes the folder ``below`` and its parents up to ``root``, in which new names may have appeared."""
    if is_remote(root):
        return
    folder = below
    while folder != root:
        sync_file(folder)
        folder = folder.parent
    sync_file(root)


def sync_tree(root: Path) -> None:
    """Flushes everything below ``root``."""
    if is_remote(root):
        return
    for folder, _, files in os.walk(root):
        for name in files:
            sync_file(Path(folder, name))
        sync_file(Path(folder))


def write_durably(path: Path, text: str, folder: Path | None = None) -> None:
    """Replaces the file at ``path`` in one step: readers see the old text or the new one, also after a power cut.

    The new text is first written in ``folder`` (of the same file system; default: that of the file).
    """
    if is_remote(path):
        path.write_text(text)
        return
    with replaced(path, folder) as aside:
        aside.write_text(text, encoding="utf-8")


@contextmanager
def replaced(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A name aside; what is written there takes the place of ``path`` in one step at the end, or goes on any failure.

    ``folder``: where the name is (of the same file system; default: beside ``path``).
    """
    aside = (folder or path.parent) / f"{path.name}.{uuid.uuid4().hex}.partial"
    try:
        yield aside
        sync_file(aside)
        aside.replace(path)
        sync_file(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def remove_partials(roots: Iterable[Path]) -> int:
    """Deletes the half-written files that a killed run left; returns how many. Only for the holder of the lock."""
    count = 0
    for root in (root for root in roots if not is_remote(root)):
        for folder, _, files in os.walk(root):
            for name in files:
                if name.endswith(".partial"):
                    os.unlink(os.path.join(folder, name))
                    count += 1
    return count


def probe_writable(folder: Path) -> None:
    """Writes, flushes and deletes a small file in ``folder``; OSError if that cannot be done."""
    probe = folder / f"probe.{uuid.uuid4().hex}.partial"
    try:
        probe.write_bytes(b"probe")
        sync_file(probe)
    finally:
        probe.unlink(missing_ok=True)
