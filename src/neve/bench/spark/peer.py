"""A real Kafka broker and Spark's Kafka source, from Maven Central.

They are fetched with `mvn` into a cache (`XDG_CACHE_HOME/neve/bench`), so only the first run needs
the network. If `mvn` or Maven Central is not available, NoPeerError is raised, and the benchmark
runs without Kafka and reports that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from neve import runtime
from neve.bench.kafka.measure import BenchError
from neve.lake.spark.java import ensure_java

KAFKA_VERSION = "4.1.1"
# The newest available version of each; together they work with the installed Spark.
CONNECTOR_VERSION, TOKENS_VERSION = "4.2.0", "4.0.0"
CONNECTOR_KAFKA_VERSION, POOL_VERSION = "3.9.2", "2.13.1"
SCALA = "2.13"
FETCH_SECONDS = 600
START_SECONDS = 60
COPYING = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PROJECT = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>neve</groupId><artifactId>bench</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      {exclusions}
    </dependency>"""
NOTHING_MORE = """<exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>"""
SERVER = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""


class NoPeerError(BenchError):
    """Kafka or its Spark source is not available here; the rest can be measured without it."""


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source and of its dependencies that Spark lacks."""
    wanted = [
        ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", CONNECTOR_VERSION),
        ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", TOKENS_VERSION),
        ("org.apache.kafka", "kafka-clients", CONNECTOR_KAFKA_VERSION),
        ("org.apache.commons", "commons-pool2", POOL_VERSION),
    ]
    return sorted(_fetched(wanted, NOTHING_MORE).glob("*.jar"))


@contextlib.contextmanager
def kafka(folder: Path, *, heap: str = "1g") -> Iterator[str]:
    """Run a Kafka broker with its log in `folder`. Yields its address."""
    jars = _fetched([("org.apache.kafka", f"kafka_{SCALA}", KAFKA_VERSION)])
    port, controller = _free_port(), _free_port()
    config = folder / "server.properties"
    config.write_text(
        SERVER.format(port=port, controller=controller, folder=folder), encoding="utf-8"
    )
    java = [str(Path(ensure_java()) / "bin" / "java"), "-cp", str(jars / "*")]
    formatting = ["kafka.tools.StorageTool", "format", "-t", "neve-bench-cluster-id0"]
    _run([*java, *formatting, "-c", str(config)], folder, BenchError)
    with (folder / "kafka.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [*java, f"-Xmx{heap}", f"-Xms{heap}", "kafka.Kafka", str(config)],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(process, port, folder / "kafka.log")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _fetched(wanted: list[tuple[str, str, str]], exclusions: str = "") -> Path:
    """Return the cache folder with these artifacts (group, name, version), fetched if missing.

    The folder is named after the first artifact.
    """
    _, artifact, version = wanted[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neve" / "bench"
    folder = cache / f"{artifact}-{version}"
    if folder.is_dir():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NoPeerError("mvn is not installed, which brings Kafka and Spark's source for it")
    making = cache / f"{folder.name}.making-{runtime.token(4).hex()}"
    making.mkdir(parents=True)
    dependencies = "".join(
        DEPENDENCY.format(group=group, artifact=name, version=version, exclusions=exclusions)
        for group, name, version in wanted
    )
    try:
        project = PROJECT.format(dependencies=dependencies)
        (making / "pom.xml").write_text(project, encoding="utf-8")
        asked = ["-DincludeScope=runtime", f"-DoutputDirectory={making}"]
        _run([mvn, "-B", "-q", COPYING, *asked], making)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _run(command: list[str], folder: Path, failure: type[BenchError] = NoPeerError) -> None:
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise failure(f"{command[0]} did not end within {FETCH_SECONDS} s") from error
    if done.returncode:
        raise failure(f"{' '.join(command)}: {(done.stdout + done.stderr)[-500:].strip()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = runtime.monotonic() + START_SECONDS
    while process.poll() is None and runtime.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        runtime.run(runtime.sleep(0.2))
    said = log.read_text(encoding="utf-8", errors="replace")[-500:]
    raise BenchError(f"Kafka did not start within {START_SECONDS} s: {said}")
