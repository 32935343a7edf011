"""`neve demo`: the whole product in a minute.

A broker starts on a temporary folder. A Kafka producer writes orders; a consumer group reads and
commits them. The broker is killed, a new one takes over, and the group continues. Then Spark reads
the same folder without a broker: a pipeline writes Iceberg tables and continues from their offsets
when more orders have arrived, and SQL joins a topic with a table.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.cli import listing
from neve.cli.demo_kafka import Broker, DemoError, consume, create, produce, say
from neve.cli.extras import INSTALL_LAKE, lake_is_installed

ORDERS, PARTITIONS = "orders", 3
CUSTOMERS = "customers"
CITIES = ("Bergen", "Graz", "Leiden", "Porto", "Turin")
CUSTOMER_COUNT = 97
FIRST, MORE, LATE = range(20_000), range(20_000, 25_000), range(25_000, 30_000)
NEXT = """\
  neve serve                              a broker on ./neve-data, for your own Kafka clients
  neve topic produce|consume, neve group  the same over Kafka's protocol, from the shell
  neve storage ls|verify ./neve-data      list and verify what is in a bucket
  neve lake run -f pipeline.yaml          topics into Iceberg tables      (docs/users/pipeline.md)
  neve sql "SELECT …"                     SQL over topics and tables      (docs/users/sql.md)
  spark.read.format("neve")               your own Spark jobs             (docs/users/spark.md)"""


def demo() -> int:
    """Show what Neve does: serve Kafka clients, crash, recover, write tables, run SQL."""
    started = runtime.monotonic()
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as folder:
        say(f"A folder is the whole installation: {folder}")
        with Broker(folder) as broker:
            _begin(broker.address)
            broker.kill()
        say("The broker is killed with SIGKILL. Another one starts:")
        with Broker(folder) as broker:
            _orders(broker.address, MORE)
            consume(broker.address, ORDERS, FIRST.stop // 2 + len(MORE))
            numbers = range(MORE.stop)
            if _lake_is_here():
                numbers = range(LATE.stop)
                _lake(folder, broker.address)
        say("The folder, as `neve storage ls` and `neve.open` read it without a broker:")
        runtime.run(_read(folder, len(numbers)))
    say(f"Done in {runtime.monotonic() - started:.0f} s. Where to look next:")
    print(NEXT)
    return 0


def _begin(address: str) -> None:
    create(address, ORDERS, PARTITIONS)
    create(address, CUSTOMERS, 1)
    produce(address, CUSTOMERS, _customers())
    _orders(address, FIRST)
    consume(address, ORDERS, FIRST.stop // 2)


def _orders(address: str, numbers: range) -> None:
    started = runtime.monotonic()
    count = produce(address, ORDERS, ((f"customer {_customer(n)}", _order(n)) for n in numbers))
    say(
        f"An idempotent Kafka producer wrote {count} orders with acks=all in "
        f"{runtime.monotonic() - started:.2f} s."
    )


def _customers() -> Iterator[tuple[str, dict[str, Any]]]:
    for number in range(CUSTOMER_COUNT):
        yield str(number), {"id": number, "city": _city(number)}


def _order(number: int) -> dict[str, Any]:
    return {"order": number, "customer": _customer(number), "cents": _cents(number)}


def _customer(number: int) -> int:
    return number % CUSTOMER_COUNT


def _city(customer: int) -> str:
    return CITIES[customer % len(CITIES)]


def _cents(number: int) -> int:
    return 100 + number * 7919 % 9_900


# --- the lake


def _lake_is_here() -> bool:
    if lake_is_installed():
        return True
    say(f"Tables and SQL need Spark, which is not installed: {INSTALL_LAKE}")
    return False


def _lake(folder: str, address: str) -> None:
    from neve.cli.demo_lake import lake

    with lake(folder) as tables:
        rows = tables.fill()
        _orders(address, LATE)
        rows += tables.fill()
        if rows != LATE.stop:
            raise DemoError(f"the table has {rows} rows for {LATE.stop} orders: this is a bug")
        _check_answer(tables.ask())


def _check_answer(rows: list[dict[str, Any]]) -> None:
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for number in range(LATE.stop):
        city = _city(_customer(number))
        orders[city] += 1
        cents[city] += _cents(number)
    wanted = [(city, orders[city], cents[city] / 100) for city in CITIES]
    if [(row["city"], row["orders"], row["euros"]) for row in rows] != wanted:
        raise DemoError(f"the query returned {rows} instead of {wanted}: this is a bug")


# --- the bucket


async def _read(folder: str, count: int) -> None:
    async with await AsyncBucket.connect(folder) as bucket:
        listing.print_info(folder, await bucket.describe())
        keys: Counter[bytes | None] = Counter()
        async for record in bucket.read(ORDERS):
            keys[record.key] += 1
        rows = size = 0
        async for batch in bucket.arrow(ORDERS):
            rows += batch.num_rows
            size += batch.nbytes
    wanted = Counter(f"customer {_customer(number)}".encode() for number in range(count))
    if keys != wanted:
        raise DemoError("the bucket does not hold every acknowledged order once: this is a bug")
    print(f"\n  {count} orders, each once; as Arrow: {rows} rows, {size} bytes of columns")
