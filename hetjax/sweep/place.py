"""Where a store is: a folder of a file system, or a prefix of an object store that a URL names (s3://bucket/grid.zarr).

Both are handled by the methods of ``pathlib.Path``; those of object stores come from universal_pathlib. An object store
has no folders to make, nothing to flush and no renames: putting an object replaces it in one step, and that is all the
commit protocol needs. Listings are never cached, because other machines write too.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hetjax.sweep.errors import SpecError, SweepError, one_line, show


def place(path: str | os.PathLike[str]) -> Path:
    """``path`` as an absolute Path, or for a URL an object with the same methods; ``file://`` names a folder.

    SpecError if the URL names no key in a bucket, or if the packages for its protocol are not installed.
    """
    text = str(path)
    if "://" not in text:
        return Path(os.path.abspath(path))
    if not isinstance(path, str | os.PathLike):
        return path  # what this function returned before
    protocol, _, rest = text.partition("://")
    if protocol == "file":
        return Path(os.path.abspath(rest))
    if "::" in text or not rest.strip("/").partition("/")[2]:
        raise SpecError(f"the store's path = {show(text)} names no place of its own in an object store; give one like"
                        " s3://bucket/results.zarr")
    try:
        from upath import UPath
    except ImportError:
        raise SpecError(f"the store's path = {show(text)} is in an object store; that needs universal-pathlib and the"
                        f" package for {protocol}, install them with: pip install 'hetjax[cloud]' and, for S3, s3fs"
                        ) from None
    try:
        found = UPath(text.rstrip("/"), use_listings_cache=False)
        _ = found.fs  # made, and its package imported, when first used
    except (ImportError, ValueError) as error:
        raise SpecError(f"the store's path = {show(text)} cannot be used ({one_line(error, 120)}); install the package"
                        f" for {protocol} (s3fs, gcsfs, adlfs, ...), or correct the URL") from None
    return cast(Path, found)


def is_remote(path: Any) -> bool:
    """Whether what :func:`place` returned is in an object store."""
    return not isinstance(path, Path)


def object_store(path: Any) -> tuple[Any, str]:
    """The fsspec file system of a path that :func:`is_remote`, and its key there."""
    return path.fs, path.path


def zarr_store(path: Path) -> Any:
    """What zarr opens the store at ``path`` by."""
    if not is_remote(path):
        return str(path)
    from zarr.storage import FsspecStore

    return FsspecStore.from_upath(path)


def holds_store(path: Path) -> bool:
    """Whether something is at ``path``; of an object store only a whole store counts, as it is put there bit by bit."""
    return (path / "zarr.json").exists() if is_remote(path) else path.exists()


def require_reachable(path: Path) -> None:
    """SweepError if the object store of ``path`` does not answer (no network, no credentials, no such bucket)."""
    if is_remote(path):
        try:
            (path / "zarr.json").exists()
        except Exception as error:  # each protocol has its own
            raise unreachable(path, error) from error


def unreachable(path: Path, error: BaseException) -> SweepError:
    """An error of an object store in one line."""
    return SweepError(f"{path} cannot be reached ({type(error).__name__}: {one_line(error, 160)}); check the address,"
                      " the network and the credentials")


def make_folder(path: Path) -> None:
    """Makes the folder and those above it; nothing in an object store."""
    if not is_remote(path):
        path.mkdir(parents=True, exist_ok=True)


def remove_tree(path: Path) -> None:
    """Deletes everything below ``path``."""
    if not is_remote(path):
        shutil.rmtree(path)
    elif path.exists():
        system, key = object_store(path)
        system.rm(key, recursive=True)


def put_tree(source: Path, target: Path, last: str) -> Iterator[None]:
    """Puts the files below the folder ``source`` under ``target``; yields once before that called ``last`` is put."""
    for file in source.rglob("*"):
        if file.is_file() and file != source / last:
            target.joinpath(*file.relative_to(source).parts).write_bytes(file.read_bytes())
    yield
    (target / last).write_bytes((source / last).read_bytes())
