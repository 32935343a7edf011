"""`neve serve`: one broker process, from its settings to its exit code.

It needs no configuration: the defaults are a bucket in `./neve-data` and clients on 127.0.0.1:9092.
It prints one line to standard output when it is ready. Logs go to standard error.

A broker that others have declared dead, because it was paused or cut off, starts again in the same
process, as a new incarnation.

Exit codes: 0 stopped by a signal, with all accepted requests committed and answered; 1 failed, or
could not start; 2 invalid flags or settings; 3 another process with this node id was started; 4 the
store does not accept writes; 128 plus the signal's number after a second signal, which ends the
process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number

from neve import __version__, runtime
from neve.cli.output import DEFAULT_FLAGS, SettingsFlags, reading_settings
from neve.errors import (
    DeniedError,
    FencedError,
    NeveError,
    StoreError,
    StoreFailedError,
    UnavailableError,
)
from neve.settings import Settings, check_memory
from neve.settings.masking import masked

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.metrics.objects import ObjectCounts
    from neve.broker.pages import BrokerPages
    from neve.serving.addresses import Address
    from neve.serving.http import HttpServer
    from neve.store.url import Stack

T = TypeVar("T")
log = logging.getLogger("neve.serve")

EXIT_STOPPED, EXIT_FAILED, EXIT_FENCED, EXIT_STORE, EXIT_EXPIRED = 0, 1, 3, 4, 5
# Time to close everything after broker.stop.grace.ms; then the process exits without waiting.
STOP_MARGIN_SECONDS = 1.5
# Pauses between attempts to start while the store does not respond.
START_PAUSE_MS, START_PAUSE_MS_MAX = 200, 5_000
# Allocations before a collection of the youngest generation. Requests, responses, batches
# and closed connections have no reference cycles, so frequent collections find nothing and cost a
# busy broker time. The middle generation is collected after every fourth, so that its pause stays
# short while many objects that live are created, as with 10,000 new partitions.
GC_THRESHOLDS = (50_000, 4, 250)


class StartError(NeveError):
    """The broker cannot start on this store, and a retry would not help."""


def serve(
    *,
    store: Annotated[
        str | None, Parameter(help="The bucket: a URL or a folder. Default: ./neve-data.")
    ] = None,
    listen: Annotated[
        str | None,
        Parameter(help="HOST:PORT for Kafka clients; port 0 selects a free port. Default: "
                       "127.0.0.1:9092."),
    ] = None,
    advertise: Annotated[
        str | None, Parameter(help="HOST:PORT that clients connect to. Default: --listen.")
    ] = None,
    node_id: Annotated[int | None, Parameter(help="Node id of this broker. Default: 1.")] = None,
    rack: Annotated[str | None, Parameter(help="Zone of this broker.")] = None,
    brokers: Annotated[
        int,
        Parameter(help="How many brokers to run on this machine, with node ids and ports in a "
                       "row.", validator=Number(gte=1, lte=256)),
    ] = 1,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:  # fmt: skip
    """Serve Kafka clients from a bucket, until SIGTERM or SIGINT.

    Brokers with the same store and different node ids form a cluster. Prints one line when it is
    ready. Exit codes: 0 stopped, 1 failed, 2 invalid flags or settings, 3 another process with this
    node id was started, 4 the store does not accept writes.
    """
    named = {
        "broker.store": store,
        "broker.listen": listen,
        "broker.advertise": advertise,
        "broker.node.id": node_id,
        "broker.rack": rack,
    }
    given = [f"{name}={value}" for name, value in named.items() if value is not None]
    flags = dataclasses.replace(settings, assignments=[*settings.assignments, *given])
    # Before libraries start threads, each of which would get its own malloc arena.
    runtime.keep_freed_memory()
    runtime.favour_the_loop()
    loaded = flags.load()
    with reading_settings():
        check_memory(loaded)
    if brokers > 1:
        from neve.cli.supervisor import supervise

        return runtime.run(supervise(loaded, flags, brokers))
    life = _Life(loaded)
    while (code := runtime.run(life.run())) == EXIT_EXPIRED:
        log.warning("starting again as a new incarnation")
    return code


class _Life:
    """The runs of one `neve serve`: a further one after each time it was declared dead.

    After `was_expired` it checks that no other process of its node was started meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.was_expired = False
        self._backoff = runtime.Backoff(START_PAUSE_MS, START_PAUSE_MS_MAX)

    async def run(self) -> int:
        if self.was_expired:
            await self._backoff.pause()
        code = await _serve(self)
        self.was_expired = code == EXIT_EXPIRED
        return code

    def listens_on(self, bound: Address) -> None:
        """Keep the port that the system chose, so that clients find the broker again."""
        broker = dataclasses.replace(self.settings.broker, listen=str(bound))
        self.settings = dataclasses.replace(self.settings, broker=broker)


async def _serve(life: _Life) -> int:
    from neve.broker.metrics.objects import ObjectCounts
    from neve.broker.pages import BrokerPages
    from neve.log.wal.stores import connect_bucket
    from neve.serving import logs
    from neve.serving.addresses import address_of, advertised_address, bind, parse_address
    from neve.store.url import refuse_one_zone

    settings = life.settings
    with reading_settings():
        for url in (settings.broker.store, *settings.wal.stores.values()):
            refuse_one_zone(url, settings.wal.durability)
        asked = parse_address("broker.listen", settings.broker.listen)
    logs.configure(settings.logs)
    logs.Repeated(log, settings.logs).log_accept_failures(asyncio.get_running_loop())
    signals = _Signals()
    # Bind before using the bucket: an accidental second start must not fence the running broker.
    where = bind("broker.listen", asked)
    with where:
        bound = address_of(where, asked)
        life.listens_on(bound)
        with reading_settings():
            advertised = advertised_address(settings.broker.advertise, bound)
            stack = connect_bucket(settings.broker.store, settings, writes=True)
        counted = ObjectCounts(stack.store)
        pages = BrokerPages(counted)
        async with _http(settings, pages) as http:
            about = {"node": settings.broker.node_id, "store": _shown_url(settings.broker.store)}
            address = str(bound)
            logs.event(
                log, logging.INFO, "broker starting", version=__version__, listen=address, **about
            )
            starting = _start(life, stack, counted, where, asked=asked, advertised=advertised)
            try:
                broker = await _unless(signals.asked, starting)
            except FencedError as error:
                log.error("the broker (node %d) stops: %s", settings.broker.node_id, error)
                return _exit_code(error)
            if broker is None:
                return EXIT_STOPPED  # stopped before it was ready
            pages.broker = broker
            print(_ready_line(settings, broker, bound, http), flush=True)
            _tune_collector()
            async with _memory_management(settings):
                return await _until_the_end(broker, pages, signals)


@contextlib.asynccontextmanager
async def _memory_management(settings: Settings) -> AsyncIterator[None]:
    from neve.broker.heap_trimming import stay_below
    from neve.store.url import parse

    if parse(settings.broker.store).scheme == "memory":
        yield  # the bucket itself is in memory, without a bound
        return
    keeper = runtime.Tasks(on_failure=_log_memory_check_failure)
    keeper.start(stay_below(settings.broker.memory_bytes), name="memory")
    try:
        yield
    finally:
        await keeper.close()


def _log_memory_check_failure(failure: BaseException) -> None:
    log.error("the check of broker.memory.bytes has failed and stopped", exc_info=failure)


async def _start(
    life: _Life,
    stack: Stack,
    counted: ObjectCounts,
    where: socket.socket,
    *,
    asked: Address,
    advertised: Address,
) -> Broker:
    """Start the broker, retrying while the store is slow or unavailable."""
    from neve.log.wal.stores import connect_bucket

    settings = life.settings
    backoff = runtime.Backoff(START_PAUSE_MS, START_PAUSE_MS_MAX)
    while True:
        counted_stack = dataclasses.replace(stack, store=counted)
        try:
            return await _started(life, counted_stack, where, asked, advertised)
        except UnavailableError as error:
            log.warning("the store is unavailable, retrying the start: %s", error)
        await backoff.pause()
        stack = connect_bucket(settings.broker.store, settings, writes=True)
        counted.inner = stack.store


async def _started(
    life: _Life, stack: Stack, where: socket.socket, asked: Address, advertised: Address
) -> Broker:
    from neve.broker.broker import Broker
    from neve.cluster.log import ClusterLog
    from neve.log.wal.stores import own_store_url
    from neve.serving.addresses import refused
    from neve.store.url import parse

    settings = life.settings
    url = settings.broker.store
    try:
        if life.was_expired:
            cluster = ClusterLog(stack.store, settings.cluster)
            await cluster.check_no_other_process(settings.broker.node_id)
            life.was_expired = False
        return await Broker.start(
            stack,
            settings,
            where,
            store_url=url,
            advertised=advertised,
            puts_cost=not parse(own_store_url(url, settings)).is_local,
        )
    except OSError as error:  # two processes bound the same port: only one may listen
        await stack.close()
        raise refused("broker.listen", asked, error) from error
    except (StoreFailedError, DeniedError) as error:
        await stack.close()
        raise StartError(f"the broker cannot start on {url}: {error}") from error
    except BaseException:
        await stack.close()
        raise


async def _until_the_end(broker: Broker, pages: BrokerPages, signals: _Signals) -> int:
    """Wait for a signal or a fatal failure of the broker. Returns the exit code."""
    failure = await _unless(signals.asked, _outcome(broker))
    pages.stopping = True
    if failure is None:
        log.info("stopping: committing and answering accepted requests")
    else:
        log.error("%s", _explained(failure, broker))
    grace_seconds = broker.settings.broker.stop_grace_ms / 1000 + STOP_MARGIN_SECONDS
    try:
        async with runtime.deadline(grace_seconds):
            if failure is None:
                return await _stopped(broker)
            await broker.abort()
            return _exit_code(failure)
    except TimeoutError:
        log.error("not stopped within %.1f s: exiting", grace_seconds)
        os._exit(EXIT_FAILED)


async def _stopped(broker: Broker) -> int:
    if await broker.stop():
        return EXIT_STOPPED
    log.error(
        "stopped after broker.stop.grace.ms with requests that were not committed or not answered: "
        "their clients must send them again"
    )
    return EXIT_FAILED


async def _outcome(broker: Broker) -> NeveError:
    return await asyncio.shield(broker.ended)


def _exit_code(failure: NeveError) -> int:
    if isinstance(failure.__cause__, StoreError):
        return EXIT_STORE
    from neve.cluster.log import ReplacedError

    if isinstance(failure, ReplacedError):
        return EXIT_FENCED
    return EXIT_EXPIRED if isinstance(failure, FencedError) else EXIT_FAILED


def _explained(failure: NeveError, broker: Broker) -> str:
    """Return the last log line of a failed broker: what happened, and what to do."""
    code = _exit_code(failure)
    if code == EXIT_FENCED:
        return (
            f"the broker (node {broker.node_id}) stops: {failure}. Each broker of a bucket needs a "
            "--node-id of its own: stop one of the two, or give it another one"
        )
    if code == EXIT_EXPIRED:
        return f"the broker (node {broker.node_id}) stops: {failure}"
    if code == EXIT_STORE:
        return f"the broker stops because the store does not accept writes: {failure}"
    return f"the broker has failed: {failure}"


def _ready_line(settings: Settings, broker: Broker, bound: Address, http: HttpServer | None) -> str:
    parts = [f"kafka {bound}", f"http {http.address if http is not None else 'off'}"]
    if broker.advertised != bound:
        parts.append(f"advertised {broker.advertised}")
    parts += [
        f"store {_shown_url(settings.broker.store)}",
        f"node {broker.node_id}",
        f"incarnation {broker.node.incarnation}",
    ]
    return f"neve {__version__} ready: {', '.join(parts)}"


def _shown_url(url: str) -> str:
    """Return the store's URL, with an absolute path for a folder."""
    from neve.store.url import parse

    location = parse(url)
    return masked(location.folder.absolute().as_uri() if location.scheme == "file" else url)


def _tune_collector() -> None:
    """Exclude the objects of the start-up from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


@contextlib.asynccontextmanager
async def _http(settings: Settings, pages: BrokerPages) -> AsyncIterator[HttpServer | None]:
    from neve.serving.http import HttpServer
    from neve.serving.logs import Repeated

    if not settings.http.listen.strip():
        yield None
        return
    limited_log = Repeated(logging.getLogger("neve.serving.http"), settings.logs)
    with reading_settings():
        server = await HttpServer.start(
            settings.http,
            pages.by_path(),
            limited_log,
            any_port="http.listen" not in settings.given,
        )
    try:
        yield server
    finally:
        await server.close()


async def _unless(asked: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`. If a stop is requested first, cancel it and return None."""
    working, stopping = runtime.spawn(work), runtime.spawn(asked.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait([working, stopping])


class _Signals:
    """Handle SIGTERM and SIGINT: the first stops the broker, the second ends the process."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came, number)

    def _came(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            os._exit(128 + number)
        self.asked.set()
