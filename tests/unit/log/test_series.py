"""The numbered series: who wins, what is believed, and what a trim may take."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import msgspec
import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DamagedError,
    DeniedError,
    ExistsError,
    InvalidError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.envelope import Kind, seal_envelope
from neve.log.keys import SeriesKeys
from neve.log.series import Entry, PassedError, Series, View, greatest_checkpoint
from neve.records.crc import crc32c
from neve.store.folder import FolderStore
from support.scripted_store import ScriptedStore, changed, first, hold, in_simulation, refuse, then

KEYS = SeriesKeys("s/")


class Words(msgspec.Struct, frozen=True):
    """The state: every word, with the number that brought it."""

    said: tuple[tuple[int, str], ...] = ()


class Word(msgspec.Struct, frozen=True):
    word: str


class WordRules:
    record_kind: Kind = Kind.CLUSTER_RECORD
    checkpoint_kind: Kind = Kind.CLUSTER_CHECKPOINT
    record_schema: type[Word] = Word
    state_schema: type[Words] = Words

    def empty(self) -> Words:
        return Words()

    def fold(self, state: Words, number: int, record: Word) -> Words:
        if record.word == "bad":
            raise DamagedError("state", "a bad word")
        return Words((*state.said, (number, record.word)))


WordSeries = Series[Words, Word]


async def test_an_object_that_is_far_too_large_is_damage_and_is_not_read(tmp_path: Path) -> None:
    """A sparse file: reading it would take as much memory as it claims to have."""
    folder = FolderStore(tmp_path)
    for key in (KEYS.number(0), KEYS.checkpoint(7)):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(6 << 30)
        with pytest.raises(DamagedError, match=f"{key} is damaged: it has 6442450944 bytes"):
            await Series(folder, KEYS, WordRules()).load()


def series(store: ScriptedStore) -> WordSeries:
    return Series(store, KEYS, WordRules())


async def say(words: WordSeries, *said: str) -> View[Words]:
    view = await words.load()
    for word in said:
        outcome = await words.propose(view, lambda _, word=word: Word(word))
        view = outcome.view
    return view


def spoken(view: View[Words]) -> list[str]:
    assert [number for number, _ in view.state.said] == list(range(view.position))
    return [word for _, word in view.state.said]


async def trimmed(store: ScriptedStore, *said: str) -> View[Words]:
    """Some words, summed up and trimmed away."""
    words = series(store)
    view = await say(words, *said)
    await words.checkpoint(view)
    await words.trim()
    return view


# --- reading


@in_simulation
async def test_an_empty_series_is_empty() -> None:
    view = await series(ScriptedStore()).load()
    assert (view.position, view.state) == (0, Words())


@in_simulation
async def test_numbers_are_folded_in_order() -> None:
    store = ScriptedStore()
    await say(series(store), "a", "b", "c")
    assert spoken(await series(store).load()) == ["a", "b", "c"]


@in_simulation
async def test_a_reader_stops_at_a_gap() -> None:
    store = ScriptedStore()
    await say(series(store), "a", "b", "c")
    await store.delete(KEYS.number(1))
    view = await series(store).load()
    assert view.position == 1


@in_simulation
async def test_reading_on_gives_the_numbers_read() -> None:
    store = ScriptedStore()
    view = await say(series(store), "a")
    await say(series(store), "b", "c")
    progress = await series(store).advance(view)
    assert progress.entries is not None
    assert [(entry.number, entry.record.word) for entry in progress.entries] == [(1, "b"), (2, "c")]
    assert spoken(progress.view) == ["a", "b", "c"]


@in_simulation
async def test_a_lagging_reader_starts_again_from_the_checkpoint() -> None:
    store = ScriptedStore()
    early = await say(series(store), "a")
    await trimmed(store, "b", "c")
    await say(series(store), "d")
    progress = await series(store).advance(early)
    assert progress.entries is None
    assert spoken(progress.view) == ["a", "b", "c", "d"]


@in_simulation
async def test_loading_reads_nothing_below_the_checkpoint() -> None:
    store = ScriptedStore()
    words = series(store)
    await words.checkpoint(await say(words, "a", "b", "c"))
    store.calls.clear()
    await series(store).load()
    assert [store.asked("get", KEYS.number(number)) for number in range(4)] == [0, 0, 0, 1]


@in_simulation
async def test_damage_below_the_checkpoint_hurts_nobody() -> None:
    store = ScriptedStore()
    words = series(store)
    early = await say(words, "a")
    await words.checkpoint(await say(words, "b", "c"))
    await store.put(KEYS.number(1), b"rubbish")
    assert spoken(await series(store).load()) == ["a", "b", "c"]
    assert spoken((await series(store).advance(early)).view) == ["a", "b", "c"]


@in_simulation
async def test_a_late_put_below_the_checkpoint_is_never_applied() -> None:
    store = ScriptedStore()
    early = await say(series(store), "a", "b")
    await trimmed(store, "c", "d")
    stale = seal_envelope(Kind.CLUSTER_RECORD, KEYS.prefix, 2, b"x" * 16, Word("late"))
    await store.put(KEYS.number(2), stale)
    assert spoken((await series(store).advance(early)).view) == ["a", "b", "c", "d"]
    assert spoken(await series(store).load()) == ["a", "b", "c", "d"]


@in_simulation
async def test_a_checkpoint_made_while_we_read_is_noticed() -> None:
    """The numbers vanish between the first read and the second: the look afterwards tells."""
    store = ScriptedStore()
    words = series(store)
    view = await say(words, "a", "b", "c")

    async def checkpoint_and_trim() -> None:
        await words.checkpoint(view)
        await words.trim()

    store.when("get", KEYS.number(1), first(checkpoint_and_trim))
    assert spoken(await series(store).load()) == ["a", "b", "c"]


@in_simulation
async def test_the_greatest_checkpoint_replaced_while_it_is_read() -> None:
    store = ScriptedStore()
    await trimmed(store, "a", "b")

    async def replace() -> None:
        store.scripts.clear()
        await trimmed(store, "c")

    store.when("get", KEYS.checkpoint(2), first(replace))
    assert spoken(await series(store).load()) == ["a", "b", "c"]


@in_simulation
async def test_a_greatest_checkpoint_that_is_listed_but_gone_is_damage() -> None:
    store = ScriptedStore()
    await trimmed(store, "a")

    async def remove() -> None:
        await store.delete(KEYS.checkpoint(1))

    store.when("get", KEYS.checkpoint(1), first(remove))
    with pytest.raises(DamagedError, match=KEYS.checkpoint(1)):
        await series(store).load()


@in_simulation
async def test_a_damaged_number_is_told_by_its_key() -> None:
    store = ScriptedStore()
    await say(series(store), "a", "b")
    broken = bytearray(store.data(KEYS.number(1)))
    broken[-6] ^= 1
    await store.put(KEYS.number(1), broken)
    with pytest.raises(DamagedError) as raised:
        await series(store).load()
    assert raised.value.key == KEYS.number(1)


@in_simulation
async def test_a_number_that_contradicts_the_state_is_told_by_its_key() -> None:
    store = ScriptedStore()
    await say(series(store), "a")
    data = seal_envelope(Kind.CLUSTER_RECORD, KEYS.prefix, 1, b"x" * 16, Word("bad"))
    await store.put(KEYS.number(1), data)
    with pytest.raises(DamagedError) as raised:
        await series(store).load()
    assert raised.value.key == KEYS.number(1)


@in_simulation
async def test_a_torn_read_is_read_again() -> None:
    store = ScriptedStore()
    await say(series(store), "a", "b")
    store.when("get", KEYS.number(1), changed(lambda data: data[:20]), times=2)
    assert spoken(await series(store).load()) == ["a", "b"]


@pytest.mark.parametrize("which", ["number", "checkpoint"])
def test_a_newer_version_is_refused(which: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        words = series(store)
        await words.checkpoint(await say(words, "a"))
        await say(words, "b")
        key = KEYS.number(1) if which == "number" else KEYS.checkpoint(1)
        newer = bytearray(store.data(key)[:-4])
        struct.pack_into(">H", newer, 4, 2)
        await store.put(key, bytes(newer) + struct.pack(">I", crc32c(newer)))
        with pytest.raises(UnsupportedError, match=key):
            await series(store).load()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_number_copied_to_another_place_is_damage() -> None:
    store = ScriptedStore()
    await say(series(store), "a")
    await store.put(KEYS.number(1), store.data(KEYS.number(0)))
    with pytest.raises(DamagedError, match=KEYS.number(1)):
        await series(store).load()


# --- proposing


@pytest.mark.parametrize("seed", range(40))
def test_proposers_race_and_each_number_has_one_winner(seed: int) -> None:
    async def main() -> None:
        store = ScriptedStore(latency=lambda: runtime.chance().random() / 10)
        won: dict[int, str] = {}

        async def proposer(name: str) -> None:
            words = series(store)
            view = await words.load()
            for count in range(5):
                outcome = await words.propose(view, lambda _, word=f"{name}{count}": Word(word))
                assert outcome.number is not None
                assert outcome.number not in won
                won[outcome.number] = f"{name}{count}"
                view = outcome.view

        await runtime.gather(proposer("x"), proposer("y"))
        assert list(enumerate(spoken(await series(store).load()))) == sorted(won.items())

    runtime.simulate(main(), seed=seed)


@pytest.mark.parametrize("seed", range(60))
def test_many_proposers_with_faults_and_trims_say_each_word_once(seed: int) -> None:
    async def main() -> None:
        chance = runtime.chance()
        store = ScriptedStore(latency=lambda: chance.random() / 10)

        def sometimes(key: str) -> bool:
            return KEYS.number_of(key) is not None and chance.random() < 0.1

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, refuse(UnavailableError), times=None)
        store.when("create", sometimes, refuse(ConflictError), times=None)
        store.when("create", sometimes, refuse(ExistsError), times=None)
        store.when("create", sometimes, store.late(1.0), times=None)

        async def proposer(name: str) -> None:
            words = series(store)
            view = await words.load()
            for count in range(4):
                word = f"{name}{count}"

                def derive(reached: View[Words], word: str = word) -> Word | None:
                    there = any(said == word for _, said in reached.state.said)
                    return None if there else Word(word)

                view = (await words.propose(view, derive)).view
                assert word in spoken(view)
                if chance.random() < 0.4:
                    await words.checkpoint(view)
                    await words.trim()

        await runtime.gather(*(proposer(name) for name in "abc"))
        await runtime.sleep(5)
        said = spoken(await series(store).load())
        assert sorted(said) == [f"{name}{count}" for name in "abc" for count in range(4)]

    runtime.simulate(main(), seed=seed)


@in_simulation
async def test_a_loser_starts_over_from_the_winner_s_state() -> None:
    store = ScriptedStore()
    release, reached = asyncio.Event(), asyncio.Event()
    store.when("create", KEYS.number(0), hold(release, reached))
    seen: list[int] = []

    def derive(view: View[Words]) -> Word:
        seen.append(view.position)
        return Word(f"after {len(view.state.said)}")

    loser = runtime.spawn(series(store).propose(View(0, Words()), derive))
    await reached.wait()
    await say(series(store), "winner")
    release.set()
    outcome = await loser
    assert seen == [0, 1]
    assert outcome.number == 1
    assert spoken(outcome.view) == ["winner", "after 1"]


@in_simulation
async def test_our_own_id_is_recognised_after_a_lost_answer() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), refuse(UnavailableError, after=True))
    outcome = await series(store).propose(View(0, Words()), lambda _: Word("mine"))
    assert outcome.number == 0
    assert store.asked("create") == 1


@pytest.mark.parametrize("error", [ConflictError, ExistsError, UnavailableError])
def test_an_error_with_nothing_landed_is_tried_again(error: type[Exception]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEYS.number(0), refuse(error), times=4)
        outcome = await series(store).propose(View(0, Words()), lambda _: Word("mine"))
        assert outcome.number == 0
        assert spoken(await series(store).load()) == ["mine"]

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_late_put_of_ours_does_not_make_us_say_it_twice() -> None:
    """The first attempt times out, the second is refused by it: both are the same record."""
    store = ScriptedStore()
    store.when("create", KEYS.number(0), store.late(0.01))
    outcome = await series(store).propose(View(0, Words()), lambda _: Word("mine"))
    await runtime.sleep(10)
    assert outcome.number == 0
    assert spoken(await series(store).load()) == ["mine"]


@in_simulation
async def test_one_that_slept_through_a_trim_does_not_believe_it_won() -> None:
    store = ScriptedStore()
    early = await say(series(store), "a", "b")
    release, reached = asyncio.Event(), asyncio.Event()
    store.when("create", KEYS.number(2), hold(release, reached))
    sleeper = runtime.spawn(series(store).propose(early, lambda _: Word("sleeper")))
    await reached.wait()
    await trimmed(store, "c", "d")
    assert KEYS.number(2) not in store.listed()
    release.set()
    outcome = await sleeper
    assert outcome.number == 4
    assert spoken(await series(store).load()) == ["a", "b", "c", "d", "sleeper"]


@in_simulation
async def test_a_win_that_a_checkpoint_hid_is_seen_in_the_state() -> None:
    """Our create landed, was summed up and trimmed before we could read it back."""
    store = ScriptedStore()
    words = series(store)

    async def sum_up() -> None:
        await trimmed(store)

    store.when("create", KEYS.number(0), then(sum_up))

    def derive(view: View[Words]) -> Word | None:
        return None if view.state.said else Word("mine")

    outcome = await words.propose(View(0, Words()), derive)
    assert outcome.number is None
    assert spoken(outcome.view) == ["mine"]


@in_simulation
async def test_a_change_that_is_not_needed_writes_nothing() -> None:
    store = ScriptedStore()
    view = await say(series(store), "a")
    store.calls.clear()
    outcome = await series(store).propose(view, lambda _: None)
    assert outcome.number is None
    assert store.asked("create") == 0


@in_simulation
async def test_a_record_that_contradicts_the_state_is_never_written() -> None:
    """Written, it would stop every reader for ever: a number is never freed."""
    store = ScriptedStore()
    await say(series(store), "a")
    with pytest.raises(InvalidError, match="bad word"):
        await say(series(store), "bad")
    assert spoken(await series(store).load()) == ["a"]


@in_simulation
async def test_what_does_not_pass_is_raised() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), refuse(DeniedError))
    with pytest.raises(DeniedError):
        await say(series(store), "a")


# --- proposing from a base


@in_simulation
async def test_from_a_base_every_number_since_is_given() -> None:
    store = ScriptedStore()
    base = await say(series(store), "a")
    await say(series(store), "b", "c")
    given: list[list[str]] = []

    def derive(view: View[Words], entries: tuple[Entry[Word], ...]) -> Word:
        given.append([entry.record.word for entry in entries])
        return Word("d")

    async def intrude() -> None:
        store.scripts.clear()
        await say(series(store), "between")

    store.when("create", KEYS.number(3), first(intrude))
    outcome = await series(store).propose_from_base(base, derive)
    assert given == [["b", "c"], ["b", "c", "between"]]
    assert outcome.number == 4


@in_simulation
async def test_from_a_base_that_a_checkpoint_passed_nothing_is_proposed() -> None:
    store = ScriptedStore()
    base = await say(series(store), "a")
    await trimmed(store, "b", "c")
    with pytest.raises(PassedError):
        await series(store).propose_from_base(base, lambda *_: Word("d"))
    assert spoken(await series(store).load()) == ["a", "b", "c"]


@in_simulation
async def test_from_a_base_at_the_checkpoint_all_is_well() -> None:
    store = ScriptedStore()
    base = await trimmed(store, "a", "b")
    outcome = await series(store).propose_from_base(base, lambda *_: Word("c"))
    assert outcome.number == 2


@in_simulation
async def test_from_a_base_a_sleeper_is_told_that_it_was_passed() -> None:
    store = ScriptedStore()
    base = await say(series(store), "a")
    release, reached = asyncio.Event(), asyncio.Event()
    store.when("create", KEYS.number(1), hold(release, reached))
    sleeper = runtime.spawn(series(store).propose_from_base(base, lambda *_: Word("sleeper")))
    await reached.wait()
    await trimmed(store, "b", "c")
    release.set()
    with pytest.raises(PassedError):
        await sleeper
    assert spoken(await series(store).load()) == ["a", "b", "c"]


# --- checkpoints and trimming


@in_simulation
async def test_the_greatest_checkpoint_is_found_among_others() -> None:
    store = ScriptedStore()
    assert await greatest_checkpoint(store, KEYS) is None
    for number in (3, 12, 7):
        await store.put(KEYS.checkpoint(number), b"")
    await store.put(f"{KEYS.checkpoints}stray", b"")
    assert await greatest_checkpoint(store, KEYS) == 12
    assert await greatest_checkpoint(store, KEYS, above=7) == 12
    assert await greatest_checkpoint(store, KEYS, above=12) is None


@in_simulation
async def test_a_trim_takes_what_is_below_the_greatest_checkpoint_and_no_more() -> None:
    store = ScriptedStore()
    words = series(store)
    await words.checkpoint(await say(words, "a", "b"))
    await words.checkpoint(await say(words, "c"))
    await say(words, "d", "e")
    await store.put("s/other", b"not ours")
    assert await words.trim() == 4
    kept = [KEYS.number(3), KEYS.number(4), KEYS.checkpoint(3), "s/other"]
    assert store.listed() == sorted(kept)
    assert await words.trim() == 0


@in_simulation
async def test_without_a_checkpoint_nothing_is_trimmed() -> None:
    store = ScriptedStore()
    words = series(store)
    await say(words, "a", "b")
    assert await words.trim() == 0
    assert len(store.listed()) == 2


@in_simulation
async def test_a_checkpoint_of_nothing_is_not_written() -> None:
    store = ScriptedStore()
    await series(store).checkpoint(View(0, Words()))
    assert store.listed() == []


@in_simulation
async def test_a_checkpoint_that_is_there_already_is_left_as_it_is() -> None:
    store = ScriptedStore()
    words = series(store)
    view = await say(words, "a")
    await words.checkpoint(view)
    before = store.data(KEYS.checkpoint(1))
    await words.checkpoint(view)
    assert store.data(KEYS.checkpoint(1)) == before


@in_simulation
async def test_a_lower_checkpoint_that_lands_late_changes_nothing() -> None:
    store = ScriptedStore()
    words = series(store)
    early = await say(words, "a")
    await trimmed(store, "b", "c")
    await words.checkpoint(early)
    assert spoken(await series(store).load()) == ["a", "b", "c"]
    await words.trim()
    assert store.listed() == [KEYS.checkpoint(3)]


@in_simulation
async def test_a_trim_that_died_half_way_leaves_a_readable_series() -> None:
    for survivors in range(4):
        store = ScriptedStore()
        words = series(store)
        early = await say(words, "a")
        await words.checkpoint(await say(words, "b", "c"))
        for number in range(3):
            if number != survivors:
                await store.delete(KEYS.number(number))
        assert spoken(await series(store).load()) == ["a", "b", "c"]
        assert spoken((await series(store).advance(early)).view) == ["a", "b", "c"]
