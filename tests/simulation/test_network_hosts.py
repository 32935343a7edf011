"""What programs see when a host of the simulated network is paused, killed or without power."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from neve import runtime
from simulation.network_lines import PORT, Client, Server, within
from support.simulated_network import KilledError, Network, simulate

# A scenario leaves its connections open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

BUFFER_BYTES = 16 * 1024


class Waiting(asyncio.Protocol):
    """A client that gives up when an answer takes two seconds."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._timer: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(2, self.events.append, "gave up")

    def ask(self) -> None:
        self._transport.write(b"hello\n")

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        self.events.append(data.decode())


def test_a_paused_host_runs_nothing_but_its_kernel() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        ticks: list[int] = []

        async def tick() -> None:
            while True:
                ticks.append(int(runtime.monotonic()))
                await runtime.sleep(1)

        server.host.spawn(tick())
        client = await Client.to(network)
        await client.ask("before")
        await runtime.sleep(2.5)
        server.host.pause()
        client.write("meanwhile")
        other = await Client.to(network, source="other")  # the kernel accepts it
        other.write("also")
        other.writer.close()
        await runtime.sleep(60)
        assert ticks == [0, 1, 2]
        assert server.lines == ["before"]
        assert server.host.is_paused
        server.host.resume()
        assert await client.answer() == "got meanwhile"
        await runtime.sleep(1)
        assert server.lines == ["before", "meanwhile", "also"]
        assert ticks == [0, 1, 2, 62, 63]

    simulate(scenario, seed=1)


def test_a_paused_host_takes_as_much_as_its_buffers_hold() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server"), answers=False).start()
        client = await Client.to(network)
        server.host.pause()
        transport = client.writer.transport
        transport.set_write_buffer_limits(high=0)
        count = 0
        while not transport.get_write_buffer_size():
            client.write("x" * 999)
            count += 1
            await runtime.sleep(0.01)
        assert 2 * BUFFER_BYTES <= count * 1000 <= 2 * BUFFER_BYTES + 1000
        await runtime.sleep(1_000)  # the kernel still answers: nobody gives up
        network.cut("server", "client", one_way=True)
        server.host.resume()
        await runtime.sleep(0.05)  # the news that there is room again are lost
        network.heal()
        await client.writer.drain()
        await runtime.sleep(150)
        assert len(server.lines) == count

    simulate(scenario, seed=1, buffer_bytes=BUFFER_BYTES)


def test_a_host_that_runs_again_takes_more_at_once() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server"), answers=False).start()
        client = await Client.to(network)
        server.host.pause()
        for _ in range(100):
            client.write("x" * 999)
        await runtime.sleep(60)
        server.host.resume()
        await runtime.sleep(0.1)
        assert len(server.lines) == 100

    simulate(scenario, seed=1, buffer_bytes=BUFFER_BYTES)


def test_a_timer_that_a_late_answer_cancels_does_not_fire_after_a_pause() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        waiting = Waiting()
        connecting = asyncio.get_running_loop().create_connection(lambda: waiting, "server", PORT)
        await network.host("client").run(connecting)
        network.link("server", "client").latency_seconds = (1.0, 1.0)
        waiting.ask()
        await runtime.sleep(0.5)
        network.host("client").pause()
        await runtime.sleep(10)
        assert server.lines == ["hello"]
        network.host("client").resume()
        await runtime.sleep(10)
        assert waiting.events == ["got hello\n"]

    simulate(scenario, seed=1)


def test_a_killed_process_ends_its_connections_and_refuses_new_ones() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        idle, busy, waiting = [await Client.to(network) for _ in range(3)]
        await idle.ask("idle")
        server.host.pause()
        busy.write("unread")
        await runtime.sleep(0.1)
        server.host.kill()
        assert await idle.answer() == ""
        with pytest.raises(ConnectionResetError):
            await busy.answer()
        assert await waiting.answer() == ""
        with pytest.raises(ConnectionRefusedError):
            await Client.to(network)
        assert server.lines == ["idle"]
        again = await Server(network.host("server")).start()
        assert await (await Client.to(network)).ask("hello") == "got hello"
        assert (server.lines, again.lines) == (["idle"], ["hello"])

    simulate(scenario, seed=1)


def test_no_code_of_a_killed_process_runs_before_the_end() -> None:
    ran: list[str] = []

    async def work() -> None:
        try:
            await runtime.sleep(1)
            ran.append("went on")
        finally:
            ran.append(f"ended at {runtime.monotonic():.0f}")

    async def scenario(network: Network) -> None:
        host = network.host("server")
        running = runtime.spawn(host.run(work()))
        await runtime.sleep(0.5)
        host.kill()
        with pytest.raises(KilledError, match="server was killed"):
            await running
        await runtime.sleep(100)
        assert ran == []
        assert await host.run(runtime.first(runtime.sleep(0.1))) is None

    simulate(scenario, seed=1)
    assert ran == ["ended at 101"]


def test_a_crashed_host_resets_its_peers() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client, far = await Client.to(network), await Client.to(network, source="far")
        network.cut("far", "server")
        server.host.crash()
        with pytest.raises(ConnectionResetError):
            await client.answer()
        with pytest.raises(ConnectionRefusedError):
            await Client.to(network)
        with pytest.raises(TimeoutError):
            await within(60, far.answer())
        far.write("anyone there?")
        await runtime.sleep(1)
        network.heal()
        with pytest.raises(ConnectionResetError):
            await far.answer()

    simulate(scenario, seed=1)


def test_a_host_without_power_is_silent_until_it_has_power_again() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        server.host.power_off()
        client.write("anyone there?")
        connecting = runtime.spawn(Client.to(network, source="other"))
        await runtime.sleep(10)
        assert not connecting.done()
        assert not client.reader.at_eof()
        server.host.power_on()
        with pytest.raises(ConnectionResetError):
            await client.answer()
        with pytest.raises(ConnectionRefusedError):
            await connecting

    simulate(scenario, seed=1)


def test_severed_connections_end_while_the_code_runs_on() -> None:
    async def scenario(network: Network) -> None:
        server = await Server(network.host("server")).start()
        client = await Client.to(network)
        await client.ask("hello")
        server.host.sever()
        with pytest.raises(ConnectionResetError):
            await client.answer()
        with pytest.raises(ConnectionRefusedError):
            await Client.to(network)
        assert server.ends == ["end"]

    simulate(scenario, seed=1)
