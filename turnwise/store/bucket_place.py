"""A shared place that is a prefix of an S3 bucket, by s3fs.

Credentials, region and the server's address (AWS_ENDPOINT_URL) come from the environment, as botocore reads it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.store.place import SharedPlace

S3 = "s3://"
SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 10, 60


class BucketPlace(SharedPlace):
    """A prefix of an S3 bucket. The server keeps an object whole or not at all; what it keeps is looked at."""

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        self._root = url.removeprefix(S3).strip("/")
        self._made: tuple[int, Any] | None = None
        _s3fs()  # refused now rather than at the first file

    @property
    def _files(self) -> Any:
        """The file system of this process: after a fork a new one, since its connections are the parent's."""
        if self._made is None or self._made[0] != os.getpid():
            timeouts = {"connect_timeout": SECONDS_TO_CONNECT, "read_timeout": SECONDS_TO_ANSWER}
            # Repeated in one place, `_patiently`; botocore would repeat each call of s3fs, which repeats it as well.
            made = _s3fs().S3FileSystem(
                skip_instance_cache=True,
                use_listings_cache=False,
                config_kwargs={**timeouts, "retries": {"max_attempts": 0}},
            )
            made.retries = 1
            self._made = (os.getpid(), made)
        return self._made[1]

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _is_passing(self, error: Exception) -> bool:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError, NoCredentialsError

        if isinstance(error, NoCredentialsError | FileNotFoundError):  # a missing object is an answer: see `_read`
            raise self.refused(error) from error
        return super()._is_passing(error) or isinstance(error, BotoCoreError | ClientError | TimeoutError)

    def _sizes(self, beginning: str) -> dict[str, int]:
        found = self._files.find(self._root, prefix=beginning, detail=True)
        cut = len(self._root) + 1
        return {path[cut:]: entry["size"] for path, entry in found.items()}

    def _read(self, names: list[str]) -> dict[str, bytes]:
        # `cat` would ask three times per file: whether it is there, how long it is, and for its content.
        paths = [self._at(name) for name in names]
        found = self._files.cat_ranges(paths, None, None, on_error="return", max_concurrency=1)
        for content in found:
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
        return {name: content for name, content in zip(names, found, strict=True) if isinstance(content, bytes)}

    def _download(self, name: str, to: Path) -> bool:
        try:
            self._files.get_file(self._at(name), str(to))
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._files.pipe_file(self._at(name), content)

    def _upload(self, files: Mapping[str, Path]) -> None:
        self._files.put([str(path) for path in files.values()], [self._at(name) for name in files])

    def _remove(self, names: Collection[str]) -> None:
        if names:  # none would be an error
            self._files.rm([self._at(name) for name in names])


def _s3fs() -> Any:
    try:
        import s3fs
    except ImportError as error:
        raise ConfigurationError(
            f"storage.url on S3 needs s3fs, which cannot be imported ({error}): pip install 'turnwise[s3]'",
            "TW-missing-package",
        ) from error
    return s3fs
