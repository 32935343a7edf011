"""Groups, as every client joins, shares, commits, leaves and comes back.

A test class inherits `GroupScenarios`; its module gives a fixture `client`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from conformance.clients import (
    Client,
    Got,
    Reader,
    Sent,
    check_same,
    fresh,
    numbered,
    take,
    wait_until,
)

PARTITIONS = 6


def spread(start: int, count: int) -> list[Sent]:
    """Numbered records, one after the other over all partitions."""
    return [
        Sent(b"k", b"value %d" % number, partition=number % PARTITIONS)
        for number in range(start, start + count)
    ]


def shared(members: Sequence[Reader]) -> bool:
    """Whether each partition belongs to one member, and all members have as many."""
    parts = [member.assigned() for member in members]
    owned = sorted(number for part in parts for number in part)
    return owned == list(range(PARTITIONS)) and len({len(part) for part in parts}) == 1


class Group:
    """The members of one group, and what they have received so far."""

    def __init__(self, client: Client, assignor: str) -> None:
        self._client = client
        self._assignor = assignor
        self.name, self.topic = fresh(f"group-{assignor}"), fresh(f"shared-{assignor}")
        client.create(self.topic, partitions=PARTITIONS)
        self.members: list[Reader] = []
        self.sent: list[Sent] = []
        self.got: list[Got] = []

    def join(self, instance: str | None = None, session_ms: int = 10_000) -> Reader:
        member = self._client.member(
            self.name,
            self.topic,
            assignor=self._assignor,
            instance=instance,
            session_ms=session_ms,
        )
        self.members.append(member)
        return member

    def leave(self, member: Reader) -> None:
        self.members.remove(member)
        member.close()

    def settle(self) -> None:
        """Wait until all partitions are shared out. Nothing comes twice on the way."""
        members = self.members
        self.got += wait_until(members, lambda: shared(members), f"{len(members)} members share")

    def pass_records(self, count: int) -> None:
        """Send some, receive and commit them."""
        more = spread(len(self.sent), count)
        self._client.produce(self.topic, more, idempotent=True)
        self.sent += more
        self.got += take(self.members, len(self.sent) - len(self.got))
        for member in self.members:
            member.commit()

    def check(self) -> None:
        check_same(self.got, self.sent)


class GroupScenarios:
    @pytest.fixture(autouse=True)
    def _nothing_left_open(self, client: Client) -> Iterator[None]:
        yield
        client.opened.close()

    def test_members_come_and_go(self, client: Client, assignor: str) -> None:
        group = Group(client, assignor)
        first, _ = group.join(), group.join()
        group.settle()
        group.pass_records(60)
        group.join()
        group.settle()
        group.pass_records(60)
        group.leave(first)
        group.settle()
        group.pass_records(60)
        group.check()

    def test_a_group_goes_on_from_what_it_committed(self, client: Client) -> None:
        topic, group = fresh("resumed"), fresh("resuming")
        client.create(topic)
        client.produce(topic, numbered(100))
        member = client.member(group, topic)
        check_same(take(member, 100), numbered(100))
        member.commit_offset(0, 40, "")
        member.close()
        member = client.member(group, topic)
        check_same(take(member, 60), numbered(60, start=40), first_offset=40)
        member.commit()
        member.close()
        client.produce(topic, numbered(10, start=100))
        member = client.member(group, topic)
        check_same(take(member, 10), numbered(10, start=100), first_offset=100)

    def test_without_a_commit_there_is_none(self, client: Client) -> None:
        topic, group = fresh("uncommitted"), fresh("uncommitting")
        client.create(topic, partitions=2)
        client.produce(topic, numbered(10))
        member = client.member(group, topic)
        check_same(take(member, 10), numbered(10))
        assert member.committed(0) is None
        assert member.committed(1) is None
        member.close()
        member = client.member(group, topic)
        check_same(take(member, 10), numbered(10))

    def test_commits_carry_their_metadata(self, client: Client) -> None:
        topic, group = fresh("noted"), fresh("noting")
        client.create(topic)
        client.produce(topic, numbered(10))
        member = client.member(group, topic)
        take(member, 10)
        member.commit_offset(0, 4, "bis hierher ❄")
        assert member.committed(0) in ((4, "bis hierher ❄"), (4, ""))
        assert client.committed_metadata(group, topic) == (4, "bis hierher ❄")
        _, end = member.bounds(0)
        assert end - 4 == 6  # the lag

    def test_commits_that_nobody_waits_for(self, client: Client) -> None:
        topic, group = fresh("async"), fresh("asyncing")
        client.create(topic)
        client.produce(topic, numbered(10))
        member = client.member(group, topic)
        take(member, 10)
        member.commit_async()
        wait_until([member], lambda: member.committed(0) is not None, "the commit is there")
        assert member.committed(0) == (10, "")

    def test_a_static_member_comes_back_to_what_it_had(self, client: Client) -> None:
        group = Group(client, client.eager[0])
        stays = group.join(instance="stays")
        leaves = group.join(instance="leaves")
        group.settle()
        group.pass_records(30)
        had, others = leaves.assigned(), stays.assigned()
        group.leave(leaves)
        client.produce(group.topic, spread(30, 30))
        group.sent += spread(30, 30)
        # Nobody is told that it went: its partitions wait for it.
        group.got += take(stays, 5 * len(others))
        assert stays.assigned() == others
        back = group.join(instance="leaves")
        group.got += take(group.members, len(group.sent) - len(group.got))
        assert (back.assigned(), stays.assigned()) == (had, others)
        group.check()

    def test_a_member_that_is_silent_too_long_is_dropped(self, client: Client) -> None:
        group = Group(client, client.eager[0])
        stays = group.join(instance="stays", session_ms=2_000)
        dies = group.join(instance="dies", session_ms=2_000)
        group.settle()
        group.pass_records(30)
        group.leave(dies)  # a static member says nothing when it goes
        began = time.monotonic()
        group.settle()
        assert 0.5 < time.monotonic() - began < 15
        assert stays.assigned() == set(range(PARTITIONS))
        group.pass_records(30)
        group.check()

    def test_a_new_topic_does_not_have_the_old_ones_commits(self, client: Client) -> None:
        topic, group = fresh("reborn"), fresh("reborn-readers")
        client.create(topic)
        client.produce(topic, numbered(20))
        member = client.member(group, topic)
        take(member, 20)
        member.commit()
        member.close()
        client.delete(topic)
        client.create(topic)
        client.produce(topic, numbered(30, start=500))
        member = client.member(group, topic)
        check_same(take(member, 30), numbered(30, start=500))


class CommittingScenarios(GroupScenarios):
    """For clients that can be told to commit by themselves."""

    def test_a_client_that_commits_by_itself(self, client: Client) -> None:
        topic, group = fresh("automatic"), fresh("automating")
        client.create(topic)
        client.produce(topic, numbered(10))
        member = client.member(group, topic, **client.commits_by_itself)
        check_same(take(member, 10), numbered(10))
        member.close()
        client.produce(topic, numbered(5, start=10))
        member = client.member(group, topic)
        check_same(take(member, 5), numbered(5, start=10), first_offset=10)
