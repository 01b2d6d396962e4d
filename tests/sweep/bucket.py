"""An object store for tests of several processes: ``bucket://FOLDER/KEY`` keeps objects as files below /FOLDER.

As in S3, putting an object replaces it in one step, ``mode="create"`` refuses an existing one, there are no folders to
make, and nothing can be renamed or locked. Importing this module registers the protocol.
"""

import io
import os
import uuid

import fsspec
from fsspec.implementations.local import LocalFileSystem
from upath.implementations.cloud import CloudPath
from upath.registry import register_implementation


class _Upload(io.BytesIO):
    """Bytes that become an object when the file is closed."""

    def __init__(self, put):
        super().__init__()
        self.put = put

    def close(self):
        if not self.closed:
            self.put(self.getvalue())
        super().close()


class BucketFileSystem(LocalFileSystem):
    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + str(path).removeprefix("bucket://").strip("/")

    def unstrip_protocol(self, name):
        return "bucket:/" + self._strip_protocol(name)

    def pipe_file(self, path, value, mode="overwrite", **options):
        path = self._strip_protocol(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        aside = f"/tmp/bucket-{uuid.uuid4().hex}"
        with open(aside, "wb") as file:
            file.write(value)
        try:
            (os.link if mode == "create" else os.replace)(aside, path)
        finally:
            if os.path.exists(aside):
                os.unlink(aside)

    def _open(self, path, mode="rb", **options):
        if "r" in mode:
            return super()._open(path, mode, **options)
        return _Upload(lambda value: self.pipe_file(path, value))

    def mv(self, *_, **__):
        raise NotImplementedError("objects cannot be renamed")

    mv_file = mkdir = makedirs = mv


fsspec.register_implementation("bucket", BucketFileSystem, clobber=True)
register_implementation("bucket", CloudPath, clobber=True)


def bucket(folder, name="grid.zarr"):
    """The address of an object in ``folder``."""
    return f"bucket://{str(folder).strip('/')}/{name}"
