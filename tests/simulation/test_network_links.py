"""What programs see when links of the simulated network are faulty; names; and replays."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neve import runtime
from neve.broker.tcp_state import has_unacknowledged_bytes
from simulation.network_lines import PORT, Client, Server, within
from support.simulated_network import Network, simulate

# A scenario leaves its connections open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


# -- replays -------------------------------------------------------------------------------------


async def busy(network: Network) -> tuple[str, int]:
    server = await Server(network.host("server")).start()
    network.slow("a", "server", loss=0.1)

    async def chat(name: str) -> None:
        client = await Client.to(network, source=name)
        for at in range(20):
            assert await client.ask(f"{name} {at}") == f"got {name} {at}"
            await runtime.sleep(runtime.chance().random())
        client.writer.close()

    async def disturb() -> None:
        for _ in range(10):
            network.cut("b", "server", one_way=runtime.chance().random() < 0.5)
            await runtime.sleep(runtime.chance().random())
            network.heal("b", "server")
            await runtime.sleep(runtime.chance().random())

    await runtime.gather(chat("a"), chat("b"), chat("c"), disturb())
    for name in ("a", "b", "c"):
        mine = [line for line in server.lines if line.startswith(name)]
        assert mine == [f"{name} {at}" for at in range(20)]
    assert any("lost" in line for line in network.history)
    return network.digest, network.packets


def test_a_seed_replays_every_packet() -> None:
    first = simulate(busy, seed=1)
    assert simulate(busy, seed=1) == first
    assert simulate(busy, seed=2) != first
    tests = Path(__file__).parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(tests)!r})\n"
        "from simulation.test_network_links import busy, simulate\n"
        "print(simulate(busy, seed=1)[0])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == first[0]


# -- links ---------------------------------------------------------------------------------------


def test_what_was_lost_arrives_once_and_late_after_healing() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        assert await client.ask("before") == "got before"
        network.cut("client", "server")
        cut_at = runtime.monotonic()
        client.write("meanwhile")
        await runtime.sleep(30)
        assert server.lines == ["before"]
        network.heal()
        assert await client.answer() == "got meanwhile"
        # TCP doubles its pause from 0.2 s on: the next attempts are at 25.4 s and 51 s.
        assert 50 < runtime.monotonic() - cut_at < 52
        assert server.lines == ["before", "meanwhile"]
        network.cut("client", "server")
        client.write("again")
        await runtime.sleep(0.1)
        network.heal()
        began = runtime.monotonic()
        await client.answer()
        assert runtime.monotonic() - began < 0.2  # the pause is short again

    simulate(scenario, seed=1)


def test_a_cut_loses_what_is_on_its_way() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        client.write("hello")
        network.cut("client", "server")
        await runtime.sleep(0.01)
        assert server.lines == []
        network.heal()
        began = runtime.monotonic()
        assert await client.answer() == "got hello"
        assert runtime.monotonic() - began > 0.1

    simulate(scenario, seed=1)


@pytest.mark.parametrize("lost", ["requests", "answers"])
def test_a_cut_may_be_one_way(lost: str) -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        await client.ask("before")
        ends = ("client", "server") if lost == "requests" else ("server", "client")
        network.cut(*ends, one_way=True)
        client.write("meanwhile")
        await runtime.sleep(5)
        assert server.lines == (["before"] if lost == "requests" else ["before", "meanwhile"])
        assert not client.reader._buffer  # type: ignore[attr-defined]
        network.heal(*ends)
        assert await client.answer() == "got meanwhile"
        await runtime.sleep(5)
        assert server.lines == ["before", "meanwhile"]  # though the request was sent again
        assert not client.reader._buffer  # type: ignore[attr-defined]

    simulate(scenario, seed=1)


def test_a_cut_concerns_one_pair_and_isolation_all_of_a_host() -> None:
    async def scenario(network: Network) -> None:
        for name in ("server", "other"):
            await Server(network.host(name)).start()
        clients = {
            (source, name): await Client.to(network, name, source=source)
            for source in ("client", "third")
            for name in ("server", "other")
        }

        async def reached() -> list[tuple[str, str]]:
            found = []
            for pair, client in clients.items():
                client.write(line := f"hello at {runtime.monotonic()}")
                try:
                    # What was lost earlier may be answered first.
                    while await within(0.1, client.answer()) != f"got {line}":
                        pass
                    found.append(pair)
                except TimeoutError:
                    pass
            return found

        assert await reached() == list(clients)
        network.cut("client", "server")
        assert await reached() == [pair for pair in clients if pair != ("client", "server")]
        network.cut("third", "server")
        network.heal("client", "server")
        await runtime.sleep(1)
        assert await reached() == [pair for pair in clients if pair != ("third", "server")]
        network.isolate("server")
        assert await reached() == [("client", "other"), ("third", "other")]
        network.heal("server")
        network.isolate("third", incoming=False)
        with pytest.raises(TimeoutError):
            await within(2, Client.to(network, source="third"))
        assert (await Client.to(network)).writer is not None
        network.heal()
        network.isolate("third", outgoing=False)
        with pytest.raises(TimeoutError):
            await within(2, Client.to(network, source="third"))

    simulate(scenario, seed=1)


def test_a_connect_hangs_while_packets_are_lost_and_gives_up_in_the_end() -> None:
    async def scenario(network: Network) -> None:
        await Server(network.host("server")).start()
        network.cut("client", "server")
        connecting = runtime.spawn(Client.to(network))
        await runtime.sleep(5)
        assert not connecting.done()
        network.heal()
        assert await (await connecting).ask("hello") == "got hello"
        assert 7 < runtime.monotonic() < 8  # attempts after 1, 3, 7, ... s
        network.cut("client", "server")
        began = runtime.monotonic()
        with pytest.raises(TimeoutError) as failure:
            await Client.to(network)
        assert failure.value.errno == errno.ETIMEDOUT
        assert 126 < runtime.monotonic() - began < 128

    simulate(scenario, seed=1)


def test_a_connection_that_makes_no_progress_fails_after_a_quarter_of_an_hour() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        await client.ask("before")
        await runtime.sleep(1)
        network.isolate("server")
        client.write("meanwhile")
        with pytest.raises(TimeoutError):
            await client.answer()
        assert 900 < runtime.monotonic() < 1_000
        network.heal()
        await runtime.sleep(1_000)
        assert server.lines == ["before"]
        assert server.ends == []  # it has nothing to send, and so learns nothing

    simulate(scenario, seed=1)


def test_what_was_written_before_a_close_arrives_after_healing_but_not_after_a_reset() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server"), answers=False).start()
        closed, reset = await Client.to(network), await Client.to(network)
        network.cut("client", "server")
        closed.write("closed")
        closed.writer.close()
        reset.write("reset")
        link = reset.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        reset.writer.transport.abort()
        await runtime.sleep(3)
        network.heal()
        await runtime.sleep(30)
        assert server.lines == ["closed"]
        assert server.ends == ["end"]  # the reset was lost, and is not sent again

    simulate(scenario, seed=1)


def test_a_closed_connection_gives_up_sooner() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server"), answers=False).start()
        client = await Client.to(network)
        await runtime.sleep(1)
        network.cut("client", "server")
        client.write("last words")
        client.writer.close()
        await runtime.sleep(150)
        network.heal()
        await runtime.sleep(150)
        assert server.lines == []

    simulate(scenario, seed=1)


def test_the_end_is_acknowledged_again_if_the_acknowledgement_was_lost() -> None:
    async def scenario(network: Network) -> None:
        accepted: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            accepted.extend([reader, writer])

        await network.host("server").run(asyncio.start_server(serve, "server", PORT))
        client = await Client.to(network)
        client.write("hello")
        client.writer.close()
        await runtime.sleep(0.1)
        reader, writer = accepted
        network.cut("client", "server", one_way=True)
        writer.write_eof()
        await runtime.sleep(0.1)
        network.heal()
        await runtime.sleep(2_000)  # longer than the end would be sent again
        writer.transport.resume_reading()
        assert await reader.read() == b"hello\n"  # and no reset

    simulate(scenario, seed=1)


def test_a_slow_link_delays_and_limits() -> None:
    async def scenario(network: Network) -> None:
        await Server(network.host("server")).start()
        network.slow("client", "server", (1.0, 1.5), bytes_per_second=10_000)
        began = runtime.monotonic()
        client = await Client.to(network)
        assert 2.0 < runtime.monotonic() - began < 3.1
        began = runtime.monotonic()
        await client.ask("x" * 30_000)
        assert 8.0 < runtime.monotonic() - began < 10
        await runtime.sleep(30)  # what is on its way is not overtaken
        other = await Client.to(network)
        began = runtime.monotonic()
        await runtime.gather(client.ask("x" * 30_000), other.ask("x" * 30_000))
        assert 10.5 < runtime.monotonic() - began < 14
        await runtime.sleep(30)
        network.heal()
        began = runtime.monotonic()
        await client.ask("x" * 30_000)
        assert runtime.monotonic() - began < 0.1

    simulate(scenario, seed=1)


def test_bytes_on_their_way_are_not_acknowledged() -> None:
    async def scenario(network: Network) -> None:
        await Server(network.host("server"), answers=False).start()
        client = await Client.to(network)
        network.slow("client", "server", (0.1, 0.1))
        client.write("hello")
        assert has_unacknowledged_bytes(client.writer.transport)
        await runtime.sleep(0.15)
        assert has_unacknowledged_bytes(client.writer.transport)
        await runtime.sleep(0.1)
        assert not has_unacknowledged_bytes(client.writer.transport)

    simulate(scenario, seed=1)


def test_a_lossy_link_loses_nothing_that_tcp_carries() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        network.slow("client", "server", loss=0.2)
        client = await Client.to(network)
        for at in range(100):
            assert await client.ask(f"{at} {'x' * 500 * at}") != ""
        assert [line.split()[0] for line in server.lines] == [str(at) for at in range(100)]
        assert sum(" lost " in line for line in network.history) > 20
        assert runtime.monotonic() < 60
        for at in range(100):  # many packets at once
            client.write(f"{at} {str(at) * 10_000}")
        for at in range(100):
            assert await client.answer() == f"got {at} {str(at) * 10_000}"

    simulate(scenario, seed=1)


# -- names ---------------------------------------------------------------------------------------


def test_names_addresses_and_ports() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        with pytest.raises(socket.gaierror):
            await Client.to(network, "unknown")
        with pytest.raises(RuntimeError, match="on no host"):
            await asyncio.open_connection("server", PORT)
        with pytest.raises(OSError, match="in use"):
            await server.start()
        with pytest.raises(OSError, match="assign"):
            await network.host("other").run(asyncio.start_server(server._serve, "server", PORT))
        local = await Client.to(network, "localhost", source="server")
        assert await local.ask("hello") == "got hello"
        by_address = await Client.to(network, "10.0.0.1")
        assert by_address.writer.get_extra_info("peername") == ("10.0.0.1", PORT)

    simulate(scenario, seed=1)


def test_a_simulation_without_a_network_has_no_sockets() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(runtime.DeadlockError):
        runtime.simulate(scenario(), seed=1)
