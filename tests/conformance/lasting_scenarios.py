"""What lasts: records in all the places they can be in, and groups and producers across restarts.

A test class inherits `LastingScenarios`; its module gives fixtures `lasting`, of module scope, and
`client`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.clients import Client, Sent, check_same, fresh, numbered, take, wait_until
from conformance.lasting_broker import LastingBroker

T0_MS = 1_700_000_000_000
COUNT = 1_500


def timed(count: int, start: int, partition: int) -> list[Sent]:
    """Records of some 300 bytes, a millisecond apart."""
    return [
        Sent(
            b"%d" % number,
            b"%04d " % number * 50,
            (("n", b"%d" % number),),
            T0_MS + number,
            partition,
        )
        for number in range(start, start + count)
    ]


def paced(records: list[Sent]) -> Iterator[Sent]:
    """The same, over some seconds."""
    for number, record in enumerate(records):
        if number % 20 == 0:
            time.sleep(0.02)
        yield record


class LastingScenarios:
    @pytest.fixture(autouse=True)
    def _nothing_left_open(self, client: Client) -> Iterator[None]:
        yield
        client.opened.close()

    def test_reads_across_all_seams(self, client: Client, lasting: LastingBroker) -> None:
        topic = fresh("seams")
        client.create(topic, partitions=2)
        fast, slow = timed(COUNT, 0, partition=0), timed(60, 0, partition=1)
        mixed = [*fast[:700], *slow[:30], *fast[700:1_400], *slow[30:], *fast[1_400:]]
        client.produce(topic, mixed, **client.small_batches)
        lasting.wait_for_segments(topic, 4)
        assert lasting.rollups() > 0
        reader = client.reader(topic, 0, 1)
        check_same(take(reader, len(mixed)), [*fast, *slow])
        more = timed(100, COUNT, partition=0)
        client.produce(topic, more, idempotent=True)
        check_same(take(reader, 100), more, first_offset=COUNT)
        chance = random.Random(7)
        for offset in [0, COUNT - 1, *(chance.randrange(COUNT) for _ in range(4))]:
            reader.seek(0, offset)
            expected = [*fast, *more][offset:]
            check_same(take(reader, len(expected)), expected, first_offset=offset)
            assert reader.offset_at(0, T0_MS + offset) == offset
        self._read_again_after_a_restart(client, lasting, topic, [*fast, *slow, *more])

    def _read_again_after_a_restart(
        self, client: Client, lasting: LastingBroker, topic: str, expected: list[Sent]
    ) -> None:
        lasting.restart(kill=True)
        client.reconnect()
        reader = client.reader(topic, 0, 1)
        assert reader.bounds(0) == (0, COUNT + 100)
        check_same(take(reader, len(expected)), expected)
        client.delete(topic)
        client.create(topic)
        fresh_reader = client.reader(topic)
        assert fresh_reader.bounds(0) == (0, 0)
        assert client.produce(topic, numbered(3)) == [0, 1, 2]
        check_same(take(fresh_reader, 3), numbered(3))

    @pytest.mark.slow
    def test_a_group_goes_on_after_its_broker(self, client: Client, lasting: LastingBroker) -> None:
        topic, group = fresh("outlived"), fresh("outliving")
        client.create(topic)
        member = client.member(group, topic, **client.frequent_looks)
        sent: list[Sent] = []
        for kill in (False, True):
            more = numbered(50, start=len(sent))
            client.produce(topic, more)
            check_same(take(member, 50), more, first_offset=len(sent))
            member.commit_offset(0, len(sent) + 50, "before the end")
            sent += more
            lasting.restart(kill=kill)
            client.reconnect()
            assert client.committed_metadata(group, topic) == (len(sent), "before the end")
        client.produce(topic, numbered(10, start=100))
        check_same(take(member, 10), numbered(10, start=100), first_offset=100)
        wait_until([member], lambda: _committed(member), "a commit after the restart")
        member.close()
        client.produce(topic, numbered(10, start=110))
        member = client.member(group, topic)
        check_same(take(member, 10), numbered(10, start=110), first_offset=110)

    @pytest.mark.slow
    def test_an_idempotent_producer_outlives_its_broker(
        self, client: Client, lasting: LastingBroker
    ) -> None:
        topic = fresh("retried")
        client.create(topic)
        sent = timed(3_000, 0, partition=0)
        with ThreadPoolExecutor(1) as aside:
            reader = client.reader(topic)
            producing = aside.submit(
                client.produce, topic, paced(sent), idempotent=True, **client.small_batches
            )
            got = take(reader, 100)
            assert not producing.done()
            lasting.restart(kill=True)
            client.reconnect()
            assert producing.result() == list(range(3_000))
            # A client that lost its connection may ask for what it had; offsets tell it apart.
            by_offset = {record.offset: record for record in got}
            while len(by_offset) < 3_000:
                more = take(reader, 3_000 - len(by_offset))
                by_offset |= {record.offset: record for record in more}
        check_same([by_offset[offset] for offset in sorted(by_offset)], sent)

    def test_what_nobody_created_is_unknown(self, client: Client, lasting: LastingBroker) -> None:
        with pytest.raises(Exception, match=client.unknown_topic):
            client.produce(fresh("nowhere"), numbered(1), **client.short_patience)


def _committed(member: object) -> bool:
    """Commit, as soon as the coordinator takes it: a member may first have to join again."""
    try:
        member.commit()  # type: ignore[attr-defined]
    except Exception:
        return False
    return True
