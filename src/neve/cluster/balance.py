"""Balance: which broker should lead which partition, of the many that share a bucket.

Everything here is pure. The results do not depend on the order of a dict, nor on the process that
computes them: brokers that have read the same cluster log agree without talking to each other.

A partition gets its leader by these rules, in this order:

1. Quotas. Counts of partitions that differ by one at most still do so once all have leaders.
2. Racks, within the topic. A rack's share of a topic is in proportion to the candidates in it. A
   rack below its share, rounded down, gets the partition; then a rack below its share at all.
3. Brokers, within the topic: the candidate that leads the fewest partitions of it.
4. Brokers, over all topics: the candidate that leads the fewest partitions.
5. A candidate of the rack that leads the fewest partitions per candidate; the lowest node id.

Candidates without a rack are in one rack together.

A partition with preferred nodes (`neve.cluster.preferred`) has the first of them that is a
candidate as its leader. Such partitions count for nothing here: all others are balanced as if they
did not exist.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from neve.cluster.preferred import preferred_leaders
from neve.cluster.state import NO_LEADER, ClusterState, PartitionKey, is_live


class Candidate(NamedTuple):
    """A process that partitions may be given to."""

    incarnation: int
    node_id: int
    rack: str


def candidates(state: ClusterState) -> tuple[Candidate, ...]:
    """Return the live processes that do not drain, by node id."""
    draining = frozenset(state.draining)
    return _in_order(
        Candidate(row.incarnation, row.node_id, row.rack)
        for row in state.brokers.values()
        if row.live and row.node_id not in draining
    )


def spread(
    state: ClusterState, partitions: Iterable[PartitionKey], among: Iterable[Candidate]
) -> dict[PartitionKey, int]:
    """Return which candidate should lead each of these partitions; nothing without a candidate.

    The partitions have no leader, or will lose it: where they are led now counts for nothing. The
    state need not have them, nor their topics. No other partition moves.

    All rules count what the candidates lead, but the second counts all of the topic's leaders in
    their racks.
    """
    chosen = _in_order(among)
    if not chosen:
        return {}
    preferred = preferred_leaders(state, _by_node(chosen))
    wanted = sorted(set(partitions))
    found = {key: preferred[key] for key in wanted if key in preferred}
    missing: dict[str, list[int]] = defaultdict(list)
    for topic_id, number in wanted:
        if (topic_id, number) not in found:
            missing[topic_id].append(number)
    if not missing:
        return found
    kept = _balanced_leaders(state, preferred)
    for topic_id, numbers in missing.items():
        leads = kept.get(topic_id, [])
        for number in numbers:
            if number < len(leads):
                leads[number] = NO_LEADER
    counts = Counter(itertools.chain.from_iterable(kept.values()))
    quota, extra = _quota(
        [counts[row.incarnation] for row in chosen], sum(map(len, missing.values()))
    )
    loads = _Loads(chosen, counts, quota, extra)
    racks = {row.incarnation: row.rack for row in state.brokers.values()}
    for topic_id, numbers in missing.items():
        topic_loads = loads.of_topic(kept.get(topic_id, ()), racks, len(numbers))
        leaders = loads.assign(topic_loads, len(numbers))
        for number, leader in zip(numbers, leaders, strict=True):
            found[topic_id, number] = leader
    return found


def target_leaders(state: ClusterState) -> dict[PartitionKey, int]:
    """Return the leader that each partition of each live topic should have.

    The candidates lead equally many partitions, give or take one. As few partitions move as that
    allows: those whose leader is not a candidate, and those that a candidate leads above its quota.
    It gives up partitions of the topics that most exceed their shares in its rack, and then on
    itself. If some of these moves are made, a new target has exactly as many moves less.

    Partitions with a preferred node that is a candidate are left out of this, and led by it.

    Without a candidate, partitions stay where they are, and those without a live leader are not in
    the result.
    """
    among = candidates(state)
    preferred = preferred_leaders(state, _by_node(among))
    target = {
        (topic_id, number): partition.leader
        for topic_id, topic in sorted(state.topics.items())
        for number, partition in enumerate(topic.partitions)
        if (topic_id, number) not in preferred
    }
    if not among:
        return {key: leader for key, leader in target.items() if is_live(state.brokers, leader)}
    counts = Counter(target.values())
    quota, extra = divmod(len(target), len(among))
    with_extra = _with_extra(among, counts, quota, extra)
    kept = {
        row.incarnation: min(counts[row.incarnation], quota + (row.incarnation in with_extra))
        for row in among
    }
    if sum(kept.values()) == len(target):
        return {**target, **preferred}
    loads = _Loads(among, kept, quota, extra - len(with_extra))
    leaders_now = _balanced_leaders(state, preferred)
    missing, topics = _given_up(leaders_now, target, counts, loads)
    for topic_id, numbers in missing.items():
        leaders = loads.assign(topics[topic_id], len(numbers))
        for number, leader in zip(numbers, leaders, strict=True):
            target[topic_id, number] = leader
    return {**target, **preferred}


def _by_node(among: Iterable[Candidate]) -> dict[int, int]:
    return {row.node_id: row.incarnation for row in among}


def _balanced_leaders(
    state: ClusterState, preferred: Mapping[PartitionKey, int]
) -> dict[str, list[int]]:
    """Return the leaders of each topic, but NO_LEADER for partitions that count for nothing."""
    leaders = {
        topic_id: [partition.leader for partition in topic.partitions]
        for topic_id, topic in state.topics.items()
    }
    for topic_id, number in preferred:
        leaders[topic_id][number] = NO_LEADER
    return leaders


def _in_order(rows: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(sorted(rows, key=lambda row: (row.node_id, row.incarnation)))


def _quota(counts: Sequence[int], missing: int) -> tuple[int, int]:
    """Return how many partitions candidates should lead once the missing ones are given to them.

    The second number is how many candidates lead one more. Those that lead the fewest get the
    missing partitions, so that counts differ by one at most if they do so now. But a candidate that
    leads far fewer than most, because it has just joined, does not get all of a new topic: it
    counts as if it led nearly as many as the median.
    """
    median = sorted(counts)[len(counts) // 2]
    adjusted = sorted(max(count, median - 1) for count in counts)
    filled, total = len(adjusted), sum(adjusted) + missing
    while adjusted[filled - 1] > total // filled:
        filled -= 1
        total -= adjusted[filled]
    return divmod(total, filled)


def _with_extra(
    among: Sequence[Candidate], counts: Mapping[int, int], quota: int, extra: int
) -> frozenset[int]:
    """Return the candidates above the quota that may keep one partition more: `extra` at most.

    If more candidates are above it, each rack gets its share of them.
    """
    sizes = Counter(row.rack for row in among)
    seen: Counter[str] = Counter()
    above: list[tuple[float, int, int]] = []
    for at, row in enumerate(among):
        if counts[row.incarnation] > quota:
            seen[row.rack] += 1
            above.append((seen[row.rack] / sizes[row.rack], at, row.incarnation))
    return frozenset(incarnation for _, _, incarnation in sorted(above)[:extra])


def _given_up(
    leaders_now: Mapping[str, Sequence[int]],
    target: Mapping[PartitionKey, int],
    counts: Mapping[int, int],
    loads: _Loads,
) -> tuple[dict[str, list[int]], dict[str, _TopicLoads]]:
    """Return the partitions of each topic that need another leader, and its loads without them.

    `counts` has what candidates lead now, `loads` what they may keep.
    """
    excess = {
        row.incarnation: counts[row.incarnation] - kept
        for row, kept in zip(loads.among, loads.counts, strict=True)
        if counts[row.incarnation] > kept
    }
    led: dict[int, dict[str, list[int]]] = {leader: defaultdict(list) for leader in excess}
    missing: dict[str, list[int]] = defaultdict(list)
    for (topic_id, number), leader in target.items():
        if leader in led:
            led[leader][topic_id].append(number)
        elif leader not in loads.positions:
            missing[topic_id].append(number)
    topics: dict[str, _TopicLoads] = {}
    for topic_id in itertools.chain(missing, *led.values()):
        if topic_id not in topics:
            rows = len(missing.get(topic_id, ()))
            topics[topic_id] = loads.of_topic(leaders_now[topic_id], {}, rows)
    for leader, given_up in excess.items():
        at = loads.positions[leader]
        _give_up(given_up, led[leader], missing, candidate=at, loads=loads, topics=topics)
    return missing, topics


def _give_up(
    count: int,
    led: Mapping[str, list[int]],
    missing: dict[str, list[int]],
    *,
    candidate: int,
    loads: _Loads,
    topics: Mapping[str, _TopicLoads],
) -> None:
    """Move `count` of the partitions that a candidate leads to the missing ones.

    If topics exceed their shares equally, the one with the fewest missing partitions gives one up.
    """

    def rank(topic_id: str) -> tuple[int, int, int, str]:
        in_rack, on_candidate = loads.surplus(topics[topic_id], candidate)
        return -in_rack, -on_candidate, len(missing.get(topic_id, ())), topic_id

    # No rank but that of the topic that gave one up changes.
    ranks = [rank(topic_id) for topic_id in led]
    heapq.heapify(ranks)
    for _ in range(count):
        topic_id = ranks[0][-1]
        missing[topic_id].append(led[topic_id].pop())
        loads.take(topics[topic_id], candidate)
        if led[topic_id]:
            heapq.heapreplace(ranks, rank(topic_id))
        else:
            heapq.heappop(ranks)


class _Rack:
    """How many candidates a rack has, what they lead, and a heap of those that may get more."""

    __slots__ = ("led", "open", "size")

    def __init__(self) -> None:
        self.size = 0
        self.led = 0
        self.open: list[tuple[int, int]] = []  # what it leads, and its position


class _TopicLoads:
    """How many partitions of one topic each candidate and each rack leads.

    `partitions` has those without a leader as well.
    """

    __slots__ = ("by_candidate", "by_rack", "partitions")

    def __init__(self, racks: int, missing: int) -> None:
        self.partitions = missing
        self.by_candidate: dict[int, int] = {}
        self.by_rack = [0] * racks

    def add(self, rack: int) -> None:
        self.partitions += 1
        self.by_rack[rack] += 1


# Candidates that were moved out of the heaps of their racks while a topic's partitions are given
# out, because they lead some of them. By rack, a heap: what each leads of the topic and of all, and
# its position.
_Leading = dict[int, list[tuple[int, int, int]]]

# A rack's tier and load within the topic, its best candidate's load within the topic and in all,
# its own load in all, that candidate, and the rack's number.
_Rank = tuple[int, float, int, int, float, int, int]


class _Loads:
    """How many partitions each candidate leads, while it is given more.

    Candidates are known by their position in the order of node ids, and racks are numbered in the
    order of their first candidates. A candidate gets `quota` partitions at most; `extra` of them
    get one more. The time that all assignments take grows with the partitions, and with the topics
    times the racks.
    """

    def __init__(
        self, among: Sequence[Candidate], counts: Mapping[int, int], quota: int, extra: int
    ) -> None:
        self.among = among
        self.positions = {row.incarnation: at for at, row in enumerate(among)}
        self.counts = [counts[row.incarnation] for row in among]
        self._quota = quota
        self._extra = extra
        names = dict.fromkeys(row.rack for row in among)
        self._rack_numbers = {name: at for at, name in enumerate(names)}
        self._racks = [_Rack() for _ in names]
        self._rack_of = [self._rack_numbers[row.rack] for row in among]
        for at, number in enumerate(self._rack_of):
            rack = self._racks[number]
            rack.size += 1
            rack.led += self.counts[at]
            rack.open.append((self.counts[at], at))
        for rack in self._racks:
            heapq.heapify(rack.open)

    def of_topic(
        self, leaders: Iterable[int], racks: Mapping[int, str], missing: int
    ) -> _TopicLoads:
        """Return what these leaders of a topic lead, besides its missing partitions.

        A leader that is not a candidate counts for its rack, if `racks` has it.
        """
        topic = _TopicLoads(len(self._racks), missing)
        for leader in leaders:
            at = self.positions.get(leader)
            if at is not None:
                topic.by_candidate[at] = topic.by_candidate.get(at, 0) + 1
                topic.add(self._rack_of[at])
            elif leader in racks and racks[leader] in self._rack_numbers:
                topic.add(self._rack_numbers[racks[leader]])
        return topic

    def surplus(self, topic: _TopicLoads, candidate: int) -> tuple[int, int]:
        """Return how far a candidate's rack, and it itself, are above their shares of a topic.

        In partitions, times the number of candidates.
        """
        rack = self._rack_of[candidate]
        return (
            topic.by_rack[rack] * len(self.among) - topic.partitions * self._racks[rack].size,
            topic.by_candidate[candidate] * len(self.among) - topic.partitions,
        )

    def take(self, topic: _TopicLoads, candidate: int) -> None:
        """Count one partition less of a topic for a candidate."""
        topic.by_rack[self._rack_of[candidate]] -= 1
        topic.by_candidate[candidate] -= 1

    def assign(self, topic: _TopicLoads, missing: int) -> list[int]:
        """Give a topic's missing partitions to candidates, one by one. Returns their incarnations.

        The candidates must have as many left below their quotas.
        """
        leading: _Leading = {}
        ranks = self._ranks(topic, leading)
        chosen: list[int] = []
        while True:
            number = ranks[0][-1]
            extra = self._extra
            chosen.append(self.among[self._give(topic, leading, number)].incarnation)
            if len(chosen) == missing:
                break
            if extra and not self._extra:  # candidates of any rack may be full now
                ranks = self._ranks(topic, leading)
            elif (rank := self._rank(topic, leading, number)) is not None:
                heapq.heapreplace(ranks, rank)
            else:
                heapq.heappop(ranks)
        for number, rows in leading.items():
            for _, led, candidate in rows:
                heapq.heappush(self._racks[number].open, (led, candidate))
        return chosen

    def _ranks(self, topic: _TopicLoads, leading: _Leading) -> list[_Rank]:
        """Return a heap of the ranks of all racks with a candidate that may get a partition."""
        ranks: list[_Rank] = []
        for number in range(len(self._racks)):
            rank = self._rank(topic, leading, number)
            if rank is not None:
                ranks.append(rank)
        heapq.heapify(ranks)
        return ranks

    def _rank(self, topic: _TopicLoads, leading: _Leading, number: int) -> _Rank | None:
        best = self._best(topic, leading, number)
        if best is None:
            return None
        of_topic, led, candidate = best
        rack = self._racks[number]
        in_rack = topic.by_rack[number]
        # In partitions, times the number of candidates.
        beyond_share = in_rack * len(self.among) - topic.partitions * rack.size
        tier, load = 2, in_rack / rack.size
        if beyond_share + len(self.among) <= 0:
            tier = 0
        elif beyond_share < 0:
            tier, load = 1, 0.0
        return tier, load, of_topic, led, rack.led / rack.size, candidate, number

    def _best(
        self, topic: _TopicLoads, leading: _Leading, number: int
    ) -> tuple[int, int, int] | None:
        """Return what the best candidate of a rack leads of the topic and of all, and itself.

        It is on top of the rack's heap, or if that is empty now, of those that lead the topic.
        """
        limit = self._quota + (self._extra > 0)
        rows = self._racks[number].open
        while rows:
            led, candidate = rows[0]
            if led >= limit:
                heapq.heappop(rows)
            elif of_topic := topic.by_candidate.get(candidate):
                heapq.heappop(rows)
                heapq.heappush(leading.setdefault(number, []), (of_topic, led, candidate))
            else:
                return 0, led, candidate
        others = leading.get(number, [])
        while others and others[0][1] >= limit:
            heapq.heappop(others)
        return others[0] if others else None

    def _give(self, topic: _TopicLoads, leading: _Leading, number: int) -> int:
        """Give a partition to the best candidate of a rack, which `_best` has found."""
        rack = self._racks[number]
        others = leading.setdefault(number, [])
        if rack.open:
            led, candidate = heapq.heappop(rack.open)
            of_topic = 0
        else:
            of_topic, led, candidate = heapq.heappop(others)
        if led == self._quota:
            self._extra -= 1
        rack.led += 1
        topic.by_rack[number] += 1
        topic.by_candidate[candidate] = of_topic + 1
        heapq.heappush(others, (of_topic + 1, led + 1, candidate))
        return candidate
