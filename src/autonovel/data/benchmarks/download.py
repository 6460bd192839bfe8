"""Fetch published data files, with checksum and progress; an interrupted download resumes where it stopped."""

from __future__ import annotations

import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError
from autonovel.data.benchmarks.published import Archive
from autonovel.data.reading.workers import Progress

_BLOCK = 2**18
_TIMEOUT = 30


def fetch_archive(archive: Archive, root: Path, progress: Progress | None = None) -> None:
    """Download one archive into the root, check it, unpack it and remove it.

    Raises:
        InputError: the server cannot be reached, or what it sends is not the published file.
    """
    import pooch

    pooch.get_logger().setLevel("ERROR")
    name = archive.url.rpartition("/")[2]
    advice = f"download {archive.url} elsewhere and put it into {root}, then run this again"
    try:
        root.mkdir(parents=True, exist_ok=True)
        fetched = Path(
            pooch.retrieve(
                archive.url, f"md5:{archive.md5}", name, root, downloader=_Resuming(root / f"{name}.part", progress)
            )
        )
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InputError(f"{name} cannot be downloaded ({reason}); {advice}.") from None
    except ValueError:  # what pooch raises for a wrong checksum
        raise InputError(f"What {archive.url} sent is not the published file (its md5 differs); {advice}.") from None
    _unpack(fetched, root / archive.into)


class _Resuming:
    """A downloader for pooch that keeps what has arrived and asks the server only for the rest."""

    def __init__(self, part: Path, progress: Progress | None) -> None:
        self.part, self.progress = part, progress

    def __call__(self, url: str, output_file: str, _: Any, check_only: bool = False) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                resumes = have and response.status == http.HTTPStatus.PARTIAL_CONTENT
                self._receive(response, have if resumes else 0)
        except urllib.error.HTTPError as error:
            if not (have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                raise
            # Nothing is left to send: the download was complete.
        os.replace(self.part, output_file)

    def _receive(self, response: Any, have: int) -> None:
        total = have + int(response.headers.get("Content-Length") or 0)
        with self.part.open("r+b" if have else "wb") as file:
            file.seek(have)
            while block := response.read(_BLOCK):
                file.write(block)
                have += len(block)
                if self.progress is not None:
                    self.progress(have, max(total, have))
        if have < total:
            raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _unpack(file: Path, folder: Path) -> None:
    """Unpack an archive into a folder and remove it; any other file is moved there."""
    folder.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            packed.extractall(folder)
    elif file.name.endswith(".tar.gz"):
        with tarfile.open(file) as packed_tar:
            packed_tar.extractall(folder, filter="data")
    else:
        shutil.move(file, folder / file.name)
        return
    file.unlink()
