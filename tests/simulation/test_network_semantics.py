"""TCP as programs see it: the same on the loopback interface and on the simulated network."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from neve import runtime
from neve.broker.tcp_state import has_unacknowledged_bytes, is_gone
from simulation.tcp_places import (
    BufferedPeer,
    Loopback,
    Peer,
    Place,
    Simulated,
    address_of,
    pair,
    until,
)
from support.simulated_network import simulate

LARGE = bytes(range(256)) * 64 * 1024  # more than the buffers of both kernels
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
Scenario = Callable[[Place], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=["asyncio", "uvloop", "simulated"])
def play(request: pytest.FixtureRequest) -> Play:
    def on_loopback(scenario: Scenario) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(scenario(Loopback()))  # type: ignore[arg-type]

    def in_simulation(scenario: Scenario) -> None:
        simulate(lambda network: scenario(Simulated(network)), seed=1)  # type: ignore[arg-type,return-value]

    return in_simulation if request.param == "simulated" else on_loopback


def test_nobody_listens(play: Play) -> None:
    async def scenario(place: Place) -> None:
        listener = await place.listen(Peer)
        address = address_of(listener)
        listener.close()
        await listener.wait_closed()
        await runtime.sleep(0.01)
        with pytest.raises(ConnectionRefusedError, match="111"):
            await place.connect(Peer, address)

    play(scenario)


def test_both_ends_have_the_same_names_for_each_other(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            client, server = two.client.transport, two.server.transport
            assert client.get_extra_info("peername") == server.get_extra_info("sockname")
            assert server.get_extra_info("peername") == client.get_extra_info("sockname")
            assert client.get_extra_info("peername") == address_of(two.listener)
            host, port = server.get_extra_info("peername")
            assert host.count(".") == 3
            assert port >= 1024

    play(scenario)


def test_bytes_arrive_in_order_and_whole_before_the_end(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            for at in range(0, len(LARGE), 100_000):
                two.client.transport.write(LARGE[at : at + 100_000])
            two.client.transport.close()
            await until(lambda: two.server.lost)
            assert bytes(two.server.data) == LARGE
            assert two.server.events == ["end"]
            assert two.server.lost == two.client.lost == [None]

    play(scenario)


def test_one_direction_can_end_while_the_other_goes_on(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place, keeps_open=True) as two:
            two.client.transport.write(b"a question")
            two.client.transport.write_eof()
            await until(lambda: two.server.events)
            assert bytes(two.server.data) == b"a question"
            two.server.transport.write(b"an answer")
            await until(lambda: two.client.data)
            assert bytes(two.client.data) == b"an answer"
            assert not two.client.lost
            two.server.transport.close()
            await until(lambda: two.client.events == ["end"])
            assert two.server.lost == [None]

    play(scenario)


def test_abort_ends_the_stream_if_nothing_is_unread(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.client.transport.write(b"last words")
            await until(lambda: two.server.data)
            two.client.transport.abort()
            await until(lambda: two.server.lost)
            assert two.server.events == ["end"]
            assert two.server.lost == [None]

    play(scenario)


def test_abort_with_unread_bytes_resets_the_peer(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.client.transport.pause_reading()
            two.server.transport.write(b"unread")
            await runtime.sleep(0.05)
            two.client.transport.abort()
            await until(lambda: two.server.lost)
            assert two.server.events == []
            assert isinstance(two.server.lost[0], ConnectionResetError)

    play(scenario)


def test_a_peer_that_has_closed_resets_what_it_is_sent(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place, keeps_open=True) as two:
            two.client.transport.close()
            await until(lambda: two.server.events)
            for _ in range(100):
                if two.server.lost:
                    break
                two.server.transport.write(b"anyone there?")
                await runtime.sleep(0.01)
            assert isinstance(two.server.lost[0], BrokenPipeError)

    play(scenario)


def test_bytes_that_have_arrived_before_a_reset_can_be_read(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.server.transport.pause_reading()
            two.client.transport.write(b"before")
            await runtime.sleep(0.05)
            link = two.client.transport.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            two.client.transport.abort()
            await runtime.sleep(0.05)
            assert not two.server.lost
            two.server.transport.resume_reading()
            await until(lambda: two.server.lost)
            assert bytes(two.server.data) == b"before"
            assert isinstance(two.server.lost[0], ConnectionResetError)

    play(scenario)


def test_bytes_that_have_not_left_are_lost_at_a_reset(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.server.transport.pause_reading()
            two.client.transport.write(LARGE)
            await runtime.sleep(0.05)
            link = two.client.transport.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            two.client.transport.abort()
            await runtime.sleep(0.05)
            two.server.transport.resume_reading()
            await until(lambda: two.server.lost)
            assert 0 < len(two.server.data) < len(LARGE)
            assert LARGE.startswith(bytes(two.server.data))
            assert isinstance(two.server.lost[0], ConnectionResetError)

    play(scenario)


def test_a_writer_is_paused_until_the_reader_reads(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.server.transport.pause_reading()
            await runtime.sleep(0.01)
            two.client.transport.write(LARGE)
            await runtime.sleep(0.1)
            assert two.client.events == ["pause"]
            assert not two.server.data
            kept = two.client.transport.get_write_buffer_size()
            _, high = two.client.transport.get_write_buffer_limits()
            assert high < kept < len(LARGE)
            two.server.transport.resume_reading()
            await until(lambda: len(two.server.data) == len(LARGE))
            assert two.client.events == ["pause", "resume"]
            assert two.client.transport.get_write_buffer_size() == 0

    play(scenario)


def test_a_writer_without_a_buffer_is_paused_at_the_first_byte_that_is_left(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.client.transport.set_write_buffer_limits(high=0)
            two.client.transport.write(b"small")
            await until(lambda: two.server.data)
            assert two.client.events == []
            two.server.transport.pause_reading()
            await runtime.sleep(0.01)
            while not two.client.transport.get_write_buffer_size():
                two.client.transport.write(bytes(10_000))
                await runtime.sleep(0.001)
            assert two.client.events == ["pause"]
            two.server.transport.resume_reading()
            await until(lambda: two.client.events == ["pause", "resume"])
            assert two.client.transport.get_write_buffer_size() == 0

    play(scenario)


def test_a_paused_reader_receives_what_came_meanwhile_and_the_end(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.server.transport.pause_reading()
            two.client.transport.write(b"one")
            two.client.transport.close()
            await until(lambda: two.client.lost)
            await runtime.sleep(0.05)
            assert not two.server.data
            assert not two.server.lost
            two.server.transport.resume_reading()
            await until(lambda: two.server.lost)
            assert bytes(two.server.data) == b"one"
            assert two.server.events == ["end"]

    play(scenario)


def test_a_buffered_protocol_receives_as_much_as_its_buffer_holds(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place, server=BufferedPeer()) as two:
            sent = LARGE[:1_234]
            two.client.transport.write(sent)
            await until(lambda: len(two.server.data) == len(sent))
            assert bytes(two.server.data) == sent
            assert max(two.server.sizes) == 100

    play(scenario)


def test_parts_are_written_as_one(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.client.transport.writelines([b"one ", bytearray(b"two "), memoryview(b"three")])
            two.client.transport.write_eof()
            await until(lambda: two.server.events)
            assert bytes(two.server.data) == b"one two three"

    play(scenario)


def test_a_closed_listener_leaves_its_connections_open(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            two.listener.close()
            two.client.transport.write(b"still here")
            await until(lambda: two.server.data)
            assert not two.server.lost

    play(scenario)


def test_connections_are_opened_before_they_are_accepted_up_to_the_backlog(play: Play) -> None:
    async def scenario(place: Place) -> None:
        bound = place.bound()
        bound.listen(1)
        clients = [Peer(), Peer()]
        for client in clients:
            await place.connect(lambda client=client: client, bound.getsockname())
            client.transport.write(b"early")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await place.connect(Peer, bound.getsockname())
        accepted, address = bound.accept()
        assert address == clients[0].transport.get_extra_info("sockname")
        assert accepted.recv(100) == b"early"
        accepted.close()
        bound.close()  # with one that was not accepted
        await until(lambda: all(client.lost for client in clients))
        assert clients[0].lost == [None]
        assert isinstance(clients[1].lost[0], ConnectionResetError)

    play(scenario)


def test_streams_read_lines_and_drain(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        def factory() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve)

        listener = await place.listen(factory)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = await place.connect(lambda: protocol, address_of(listener))
        transport.write(b"one\ntwo\n")
        assert await reader.readline() == b"ONE\n"
        assert await reader.readline() == b"TWO\n"
        transport.write_eof()
        assert await reader.read() == b""
        listener.close()
        transport.close()
        await runtime.sleep(0.01)

    play(scenario)


def test_the_kernel_says_whether_the_peer_is_gone_and_has_everything(play: Play) -> None:
    async def scenario(place: Place) -> None:
        async with await pair(place) as two:
            server = two.server.transport
            server.write(b"a response")
            await until(lambda: two.client.data)
            await runtime.sleep(0.05)
            assert not has_unacknowledged_bytes(server)
            two.client.transport.pause_reading()
            await runtime.sleep(0.01)
            server.write(LARGE)
            await runtime.sleep(0.05)
            assert has_unacknowledged_bytes(server)
            two.client.transport.resume_reading()
            await until(lambda: len(two.client.data) > len(LARGE))
            await runtime.sleep(0.05)
            assert not has_unacknowledged_bytes(server)
            server.pause_reading()
            assert not is_gone(server)
            two.client.transport.close()
            await until(lambda: is_gone(server))
            assert not two.server.lost

    play(scenario)
