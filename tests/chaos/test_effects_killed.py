"""Killed callers and lost connections between an effect's intention and its outcome: it is never run a second time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clients import AsyncClient, Client, wait_until
from proxy import Moment, Proxy

import eventstore
from eventstore import EventStore
from eventstore.errors import EffectIndeterminate, EffectPending, StoreUnavailable

PROGRAM = Path(__file__).parent / "effects_caller.py"
REPOSITORY = Path(eventstore.__file__).parent.parent
SHORT = 2.0


class Caller:
    """A process that runs effects."""

    def __init__(self, url: str, stream: str, world: Path, lease: float, *keys: str, steps: bool = True) -> None:
        paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, stream, str(world), str(lease), *keys],
            stdin=subprocess.PIPE if steps else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
            text=True,
        )

    def reaches(self, name: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == name + "\n", self.process.communicate()[1]

    def goes_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def make_caller(url: str) -> Iterator[Callable[..., Caller]]:
    with ExitStack() as stack:

        def make(*args: Any, **kwargs: Any) -> Caller:
            made = Caller(url, *args, **kwargs)
            stack.callback(made.kill)
            return made

        yield make


def acted(world: Path) -> Counter[str]:
    return Counter(world.read_text().split()) if world.exists() else Counter()


def never() -> None:
    pytest.fail("the tool was called a second time")


@pytest.mark.parametrize("last", ["begun", "acted"])
def test_a_caller_killed_between_intention_and_outcome_leaves_it_indeterminate(
    store: EventStore, tmp_path: Path, make_caller: Callable[..., Caller], last: str
) -> None:
    world = tmp_path / "world"
    effects = store.conversation("other", context="ctx").effects
    caller = make_caller("s", world, 1.0, "k")
    caller.reaches("begun")
    if last == "acted":
        caller.goes_on()
        caller.reaches("acted")
    caller.kill()

    def told() -> bool:
        """Only the server's clock says when the lease ends."""
        with pytest.raises((EffectPending, EffectIndeterminate)) as caught:
            effects.run("act", never, key="k")
        return caught.type is EffectIndeterminate

    wait_until(told, "its lease ends")
    assert effects.find("k").by == "s"
    happened = acted(world)["k"] == 1
    assert happened == (last == "acted")
    effects.resolve("k", succeeded=happened, result="looked" if happened else None)
    assert effects.run("act", lambda: "anew", key="k") == ("looked" if happened else "anew")


def test_while_the_lease_of_a_killed_caller_lasts_it_is_pending(
    store: EventStore, tmp_path: Path, make_caller: Callable[..., Caller]
) -> None:
    caller = make_caller("s", tmp_path / "world", 3600.0, "k")
    caller.reaches("begun")
    caller.kill()
    with pytest.raises(EffectPending, match="by 's'"):
        store.conversation("other", context="ctx").effects.run("act", never, key="k")


def test_processes_that_are_killed_at_any_moment_act_once_a_key_and_who_looks_makes_it_exactly_once(
    store: EventStore, db: psycopg.Connection, tmp_path: Path, make_caller: Callable[..., Caller]
) -> None:
    world, keys, chance = tmp_path / "world", [f"k{n}" for n in range(150)], random.Random(7)
    callers: list[Caller] = []
    for n in range(6):
        own = keys[:]
        chance.shuffle(own)
        callers.append(make_caller(f"s{n}", world, 3600.0, *own, steps=False))
    for n, caller in enumerate(callers[:4]):
        wait_until(lambda n=n: sum(acted(world).values()) > 10 + 20 * n, "they act")
        caller.kill()
    for caller in callers[4:]:
        _, error = caller.process.communicate(timeout=120)
        assert caller.process.returncode == 0, error
    assert max(acted(world).values()) == 1
    effects = store.conversation("desk", context="ctx").effects
    held = [effect for effect in effects.list() if effect.state != "succeeded"]
    assert {effect.state for effect in held} <= {"pending"}
    assert len(held) <= 4, "what each killed one was at"
    assert {effect.key for effect in effects.list()} == set(keys)
    assert store.verify().ok
    db.execute("UPDATE events SET recorded_at = recorded_at - interval '1 day' WHERE type = 'effect.intended'")

    def act(key: str) -> None:
        with world.open("a") as file:
            file.write(key + "\n")

    for key in [effect.key for effect in held]:
        effects.resolve(key, succeeded=acted(world)[key] == 1)
        effects.run("act", lambda key=key: act(key), key=key)
    assert acted(world) == Counter(keys)


def run(client: Client, call: Callable[[], Any], key: str = "k") -> Any:
    if isinstance(client, AsyncClient):
        return client.run(client.store.conversation("s").effects.run("act", call, key=key))
    return client.store.conversation("s").effects.run("act", call, key=key)  # type: ignore[attr-defined]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("which", ["intention", "outcome"])
def test_a_connection_lost_at_either_append_does_not_show(
    client: Client, proxy: Proxy, store: EventStore, moment: Moment, which: str
) -> None:
    calls = []

    def call() -> str:
        calls.append(1)
        if which == "outcome":
            proxy.cut(moment)
        return "ok"

    client.append("s", [0])
    if which == "intention":
        proxy.cut(moment)
    assert run(client, call) == run(client, call) == "ok"
    assert proxy.cuts == 1
    assert calls == [1]
    assert len(store.conversation("s").effects.find("k").versions) == 2


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_outcome_that_can_not_be_recorded_is_given_to_its_caller(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore, moment: Moment
) -> None:
    client = make_client(proxy.url, timeout=SHORT)

    def call() -> str:
        proxy.cut(moment, then_down=True)
        return "ok"

    with pytest.raises(EffectIndeterminate, match="it happened, but its result is not recorded") as caught:
        run(client, call)
    assert (caught.value.happened, caught.value.result) == (True, "ok")
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    effects = store.conversation("s").effects
    if moment == "after":
        assert effects.run("act", never, key="k") == "ok"
    else:
        with pytest.raises(EffectPending):
            effects.run("act", never, key="k")


def test_the_outcome_is_sent_until_the_server_is_back(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore
) -> None:
    client = make_client(proxy.url)

    def let_in() -> None:
        wait_until(lambda: proxy.turned_away, "it was hung up on")
        proxy.turn_away = False

    def call() -> str:
        proxy.cut("before")
        proxy.turn_away = True
        threading.Thread(target=let_in).start()
        return "ok"

    assert run(client, call) == "ok"
    assert proxy.turned_away > 0
    assert store.conversation("s").effects.find("k").state == "succeeded"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_without_a_certain_intention_the_tool_is_not_called_and_the_error_says_what_may_be_held(
    make_client: Callable[..., Client], proxy: Proxy, store: EventStore, moment: Moment
) -> None:
    client = make_client(proxy.url, timeout=SHORT)
    client.append("s", [0])
    proxy.cut(moment, then_down=True)
    with pytest.raises(StoreUnavailable) as caught:
        run(client, never)
    assert caught.value.outcome == "unknown"
    assert "the tool was not called" in caught.value.__notes__[0]
    assert [effect.state for effect in store.conversation("s").effects.list()] == ["pending"] * (moment == "after")


def test_the_callers_error_stays_where_its_doubt_can_not_be_recorded(
    make_client: Callable[..., Client], proxy: Proxy
) -> None:
    client = make_client(proxy.url, timeout=SHORT)

    def call() -> None:
        proxy.down()
        raise KeyError("the tool's own")

    with pytest.raises(KeyError) as caught:
        run(client, call)
    assert "indeterminate once its lease" in caught.value.__notes__[0]
