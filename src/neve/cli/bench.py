"""`neve bench …`: benchmarks."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from neve.cli import bench_kafka, output
from neve.cli.extras import need_lake

JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]

app = App(name="bench", help="Run benchmarks. Exit code 1 if a target is missed.")
app.command(bench_kafka.produce)
app.command(bench_kafka.consume)
app.command(bench_kafka.latency)
app.command(bench_kafka.mock)


@app.command
def storage(
    *,
    json: JsonFlag = False,
    runs: Annotated[int | None, Parameter(help="Seeded runs per measurement.")] = None,
) -> int:
    """Measure uploads, index reads, recovery and commits against a simulated store."""
    from neve.bench import storage as measured

    with output.progress("runs") as bar:
        result = measured.run(
            measured.RUNS_DEFAULT if runs is None else runs,
            on_progress=lambda done, total, _what: bar.show(done, total),
        )
    return _shown(result, as_json=json)


@app.command
def records(*, json: JsonFlag = False) -> int:
    """Measure decoding of records into Arrow columns, against aiokafka's C decoder."""
    from neve.bench import records as measured

    return _shown(measured.run(), as_json=json)


@app.command
def broker(
    *,
    json: JsonFlag = False,
    rounds: Annotated[int | None, Parameter(help="Rounds. Results are medians.")] = None,
) -> int:
    """Measure a broker against librdkafka's mock cluster, both on this machine."""
    from neve.bench.broker import compare as measured

    with output.progress("steps") as bar:
        result = measured.run(
            measured.ROUNDS_DEFAULT if rounds is None else rounds, on_progress=bar.show
        )
    return _shown(result, as_json=json)


@app.command
def backlog(
    *,
    json: JsonFlag = False,
    bytes: Annotated[str, Parameter(help="Size of the topic.")] = "5GB",
    rounds: Annotated[int | None, Parameter(help="Rounds. Results are medians.")] = None,
) -> int:
    """Measure a broker with a large topic: memory, cold reads, and live traffic meanwhile.

    Every get from the store is delayed by 10 ms.
    """
    from neve.bench.broker import backlog as measured

    size = bench_kafka.parse_bytes("--bytes", bytes)
    with output.progress("steps") as bar:
        result = measured.run(
            size, measured.ROUNDS_DEFAULT if rounds is None else rounds, on_progress=bar.show
        )
    return _shown(result, as_json=json)


@app.command
def cluster(
    *,
    json: JsonFlag = False,
    failovers: Annotated[int | None, Parameter(help="Brokers to kill. The longest counts.")] = None,
    tail: Annotated[str, Parameter(help="Size of the tail that a new leader reads.")] = "256MB",
    partitions: Annotated[
        int | None, Parameter(help="Partitions that a drained broker releases.")
    ] = None,
    seconds: Annotated[float | None, Parameter(help="Duration of each steady load.")] = None,
) -> int:
    """Measure three brokers: failover, planned moves, replacement, bytes between brokers.

    All of them and their clients run on this machine.
    """
    from neve.bench.cluster import measure

    plan = measure.Plan(
        failovers=measure.FAILOVERS_DEFAULT if failovers is None else failovers,
        tail_bytes=bench_kafka.parse_bytes("--tail", tail),
        moved=measure.MOVED_DEFAULT if partitions is None else partitions,
        seconds=measure.SECONDS_DEFAULT if seconds is None else seconds,
    )
    with output.progress("steps") as bar:
        result = measure.run(plan, on_progress=bar.show)
    return _shown(result, as_json=json)


@app.command
def scale(
    *,
    json: JsonFlag = False,
    brokers: Annotated[int | None, Parameter(help="Simulated brokers.")] = None,
    partitions: Annotated[int | None, Parameter(help="Partitions of all of them.")] = None,
    seconds: Annotated[float | None, Parameter(help="Duration of each real load.")] = None,
    idle_seconds: Annotated[
        float | None, Parameter(help="Simulated seconds without clients.")
    ] = None,
) -> int:
    """Measure one to three brokers on this machine, and a large simulated cluster.

    The simulated one has its bucket in memory, with the latencies of S3.
    """
    from neve.bench.scale import measure

    default = measure.Plan()
    plan = measure.Plan(
        brokers=default.brokers if brokers is None else brokers,
        partitions=default.partitions if partitions is None else partitions,
        seconds=default.seconds if seconds is None else seconds,
        idle_seconds=default.idle_seconds if idle_seconds is None else idle_seconds,
    )
    with output.progress("steps") as bar:
        result = measure.run(plan, on_progress=bar.show)
    return _shown(result, as_json=json)


@app.command
def spark(
    *,
    json: JsonFlag = False,
    rounds: Annotated[int | None, Parameter(help="Rounds. Results are medians.")] = None,
    scale: Annotated[float, Parameter(help="Share of the records, for a quick run.")] = 1.0,
) -> int:
    """Measure Spark's reads of a topic, against Spark's Kafka source and against Parquet.

    Kafka and Spark's Kafka source are downloaded from Maven Central if it is reachable.
    """
    need_lake()
    from neve.bench.spark import reads as measured

    with output.progress("steps") as bar:
        result = measured.run(
            measured.ROUNDS_DEFAULT if rounds is None else rounds, scale, on_progress=bar.show
        )
    return _shown(result, as_json=json)


@app.command
def lake(
    *,
    json: JsonFlag = False,
    rounds: Annotated[int | None, Parameter(help="Rounds. Results are medians.")] = None,
    scale: Annotated[float, Parameter(help="Share of the records, for a quick run.")] = 1.0,
    seconds: Annotated[float | None, Parameter(help="Duration of the steady load.")] = None,
) -> int:
    """Measure a pipeline: a backlog against pyarrow, and the latency from record to table."""
    from neve.bench.spark import lake as measured

    with output.progress("steps") as bar:
        result = measured.run(
            measured.ROUNDS_DEFAULT if rounds is None else rounds,
            scale,
            measured.SECONDS_DEFAULT if seconds is None else seconds,
            on_progress=bar.show,
        )
    return _shown(result, as_json=json)


def _shown(result: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        output.write_json(result)
    else:
        _print(result, "")
    return 0 if result.get("passed", True) else 1


def _print(value: Any, indent: str) -> None:
    """Print a nested result as indented lines."""
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value, 1):
        if isinstance(inner, dict | list):
            print(f"{indent}{name}:")
            _print(inner, indent + "  ")
        else:
            print(f"{indent}{name}: {inner}")
