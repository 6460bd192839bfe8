"""Fetching published files from a small server of our own: checksum, going on after a break, no network."""

import hashlib
import http.server
import io
import re
import tarfile
import threading
import zipfile
from dataclasses import replace

import pytest

from autonovel.base.errors import InputError
from autonovel.data.benchmarks import published, splits
from autonovel.data.benchmarks.download import fetch_archive
from autonovel.data.benchmarks.published import Archive
from autonovel.data.benchmarks.splits import fetch_benchmark
from tests.small_data import write_small_cifar10


@pytest.fixture
def server():
    """Serves ``server.files``; breaks off after ``server.break_after`` bytes; knows ranges unless told otherwise."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = shelf.files.get(self.path.lstrip("/"))
            shelf.requests.append(self.headers.get("Range"))
            if content is None:
                return self.send_error(404)
            wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "") if shelf.ranges else None
            start = int(wanted[1]) if wanted else 0
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = len(content) if shelf.break_after is None else start + shelf.break_after
            self.wfile.write(content[start:end])

        def log_message(self, *_):
            pass

    class Shelf(http.server.ThreadingHTTPServer):
        files: dict = {}  # noqa: RUF012
        requests: list = []  # noqa: RUF012
        break_after = None
        ranges = True

    shelf = Shelf(("127.0.0.1", 0), Handler)
    shelf.files, shelf.requests = {}, []
    shelf.url = f"http://127.0.0.1:{shelf.server_port}"
    thread = threading.Thread(target=shelf.serve_forever, daemon=True)
    thread.start()
    yield shelf
    shelf.shutdown()
    shelf.server_close()


def md5(content):
    return hashlib.md5(content).hexdigest()


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, text in files.items():
            packed.writestr(f"folder/{name}.txt", text)
    return buffer.getvalue()


def test_archives_are_unpacked_and_removed(server, tmp_path):
    content = server.files["x.zip"] = zipped(a="1", b="2")
    steps = []
    fetch_archive(Archive(f"{server.url}/x.zip", md5(content), "into"), tmp_path, lambda *step: steps.append(step))
    assert (tmp_path / "into/folder/a.txt").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["into"]
    assert steps[-1] == (len(content), len(content))


def test_plain_files_are_put_in_place(server, tmp_path):
    server.files["train.mat"] = b"matlab"
    fetch_archive(Archive(f"{server.url}/train.mat", md5(b"matlab"), "svhn"), tmp_path)
    assert (tmp_path / "svhn/train.mat").read_bytes() == b"matlab"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(server, tmp_path, ranges):
    content = server.files["big.bin"] = bytes(range(256)) * 4000
    archive = Archive(f"{server.url}/big.bin", md5(content))
    server.break_after, server.ranges = 600_000, ranges
    with pytest.raises(InputError, match=r"big\.bin cannot be downloaded"):
        fetch_archive(archive, tmp_path)
    assert 0 < (tmp_path / "big.bin.part").stat().st_size <= 600_000
    server.break_after = None
    fetch_archive(archive, tmp_path)
    assert (tmp_path / "big.bin").read_bytes() == content
    assert re.match(r"bytes=\d+-", server.requests[-1])


def test_a_part_that_is_complete_is_used(server, tmp_path):
    content = server.files["whole.bin"] = b"everything"
    (tmp_path / "whole.bin.part").write_bytes(content)
    fetch_archive(Archive(f"{server.url}/whole.bin", md5(content)), tmp_path)
    assert (tmp_path / "whole.bin").read_bytes() == content


def test_wrong_content_is_refused_and_not_kept(server, tmp_path):
    server.files["x.zip"] = zipped(a="evil")
    with pytest.raises(InputError, match="not the published file"):
        fetch_archive(Archive(f"{server.url}/x.zip", md5(b"good")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unpacking_stays_in_its_folder(server, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        member = tarfile.TarInfo("../outside.txt")
        member.size = 4
        packed.addfile(member, io.BytesIO(b"evil"))
    content = server.files["x.tar.gz"] = buffer.getvalue()
    with pytest.raises((InputError, tarfile.TarError)):
        fetch_archive(Archive(f"{server.url}/x.tar.gz", md5(content)), tmp_path / "root")
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.tar.gz", "http://nowhere.invalid/x.tar.gz"])
def test_without_network_one_sentence(tmp_path, url):
    with pytest.raises(InputError, match=r"x\.tar\.gz cannot be downloaded .* and put it into") as refused:
        fetch_archive(Archive(url, "0" * 32), tmp_path)
    assert "\n" not in str(refused.value)


def test_missing_on_the_server(server, tmp_path):
    with pytest.raises(InputError, match=r"cannot be downloaded \(Not Found\)"):
        fetch_archive(Archive(f"{server.url}/gone.zip", "0" * 32), tmp_path)


def test_a_whole_benchmark(server, tmp_path, monkeypatch):
    made = write_small_cifar10(tmp_path / "made", per_class=2)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        packed.add(made / "cifar-10-batches-py", "cifar-10-batches-py")
    content = server.files["cifar-10-python.tar.gz"] = buffer.getvalue()
    small = replace(
        published.CIFAR10,
        files={name: md5((made / "cifar-10-batches-py" / name).read_bytes()) for name in published.CIFAR10.files},
        archives=(Archive(f"{server.url}/cifar-10-python.tar.gz", md5(content)),),
    )
    monkeypatch.setattr(published, "CIFAR10", small)
    monkeypatch.setitem(splits._FILES, "cifar10", small)
    root = tmp_path / "root"
    assert "20 training and 50 test images" in fetch_benchmark("cifar10", root)
    assert [path.name for path in root.iterdir()] == ["cifar-10-batches-py"]
    n_requests = len(server.requests)
    fetch_benchmark("cifar10", root)  # verifies what is there
    assert len(server.requests) == n_requests
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(b"rotten")
    fetch_benchmark("cifar10", root)
    assert len(server.requests) == n_requests + 1


def test_benchmarks_that_are_not_downloaded(tmp_path):
    assert "nothing to fetch" in fetch_benchmark("digits", tmp_path)
    with pytest.raises(InputError, match="does not hold ImageNet"):
        fetch_benchmark("imagenet:A", tmp_path)
    with pytest.raises(InputError, match="There is no benchmark"):
        fetch_benchmark("mnist", tmp_path)
