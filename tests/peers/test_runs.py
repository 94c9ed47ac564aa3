"""What the log keeps of runs: who, which run and turn, responses and tools; branches, the past, usage, server state."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from agents import Runner
from scripts import Make, Play, Shelf, agent, answers, call, calls, kinds, output, said, seen, texts, user

from eventstore import AsyncEventStore, EventStore, errors
from eventstore.adapters.openai_agents import ConvstoreSession
from eventstore.compaction import Packing


async def events(session: ConvstoreSession) -> list[Any]:
    return [event async for event in (await session.chat()).events()]


def test_events_carry_agent_run_and_turn_and_responses_are_stored_with_their_items(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make().for_run("request-17")
        clerk = agent(calls("look_up", "c1"), answers("done"), tools=[Shelf().tool])
        await Runner.run(clerk, "find it", session=session, hooks=session.hooks())
        found = await events(session)
        assert [(e.type, e.agent, e.metadata["turn"]) for e in found] == [
            ("item.appended", None, 0),
            ("item.appended", "clerk", 1),
            ("item.appended", "clerk", 1),
            ("response.recorded", "clerk", 1),
            ("item.appended", "clerk", 2),
            ("response.recorded", "clerk", 2),
        ]
        assert {e.run_id for e in found} == {"request-17"}
        assert [e.data["response_id"] for e in found if e.type == "response.recorded"] == ["resp_c1", "resp_done"]
        assert found[3].data["usage"]["input_tokens"] == 10
        told = found[2].metadata
        assert told["tool"] == "look_up"
        assert 0 <= told["seconds"] < 60

    ours(story)


def test_without_hooks_runs_and_turns_are_told_apart(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        for text in ("one", "two"):
            clerk = agent(calls("look_up", f"c-{text}"), answers(text), tools=[Shelf().tool])
            await Runner.run(clerk, text, session=make())
        found = await events(make())
        assert [e.metadata["turn"] for e in found] == [0, 1, 1, 2] * 2
        assert len({e.run_id for e in found[:4]}) == 1
        assert {e.run_id for e in found[:4]}.isdisjoint({e.run_id for e in found[4:]})

    ours(story)


def test_a_turn_is_one_append(ours: Play[Any], db: psycopg.Connection) -> None:
    async def story(make: Make) -> None:
        session = make()
        clerk = agent(calls("look_up", "c1"), answers("done"), tools=[Shelf().tool])
        await Runner.run(clerk, "find it", session=session, hooks=session.hooks())
        found = await events(session)
        appends = db.execute("SELECT count(*) FROM events WHERE chain IS NOT NULL").fetchone()[0]
        assert (len(found), appends) == (6, 3)

    ours(story)


def test_usage_by_session_turn_and_tool_is_that_of_the_sdks_advanced_session(ours: Play[Any]) -> None:
    from agents.extensions.memory import AdvancedSQLiteSession

    def script() -> list[Any]:
        return [
            agent(calls("look_up", "c1", tokens=100), answers("a1", tokens=200), tools=[Shelf().tool]),
            agent(answers("a2", tokens=50)),
        ]

    async def theirs() -> tuple[Any, ...]:
        session = AdvancedSQLiteSession(session_id="s", create_tables=True)
        for number, clerk in enumerate(script(), 1):
            await session.store_run_usage(await Runner.run(clerk, f"q{number}", session=session))
        figures = await figures_of(session)
        session.close()
        return figures

    async def figures_of(session: Any) -> tuple[Any, ...]:
        turns = await session.get_turn_usage()
        rows = [{key: row[key] for key in row if not key.endswith("details")} for row in turns]
        tools = [tuple(row) for row in await session.get_tool_usage()]
        listed = [(turn["turn"], turn["full_content"]) for turn in await session.get_conversation_turns()]
        return await session.get_session_usage(), rows, tools, listed

    async def story(make: Make) -> None:
        wanted = await theirs()
        assert await make("nobody").get_session_usage() is None
        for name, hooked in (("hooked", True), ("told after", False), ("both", True)):
            session = make(name)
            for number, clerk in enumerate(script(), 1):
                result = await Runner.run(
                    clerk, f"q{number}", session=session, hooks=session.hooks() if hooked else None
                )
                for _ in range(0 if name == "hooked" else 2):
                    await session.store_run_usage(result)
            assert await figures_of(session) == wanted, name
            assert await session.get_turn_usage(2) == await session.get_turn_usage(2)
            assert (await session.get_turn_usage(1))["input_tokens"] == 300

    ours(story)


def test_a_response_without_an_id_is_recorded_once(ours: Play[Any]) -> None:
    from agents import Usage
    from agents.testing import ModelStep, assistant_message

    async def story(make: Make) -> None:
        session = make()
        step = ModelStep(output=[assistant_message("hi")], usage=Usage(requests=1, input_tokens=3), response_id=None)
        result = await Runner.run(agent(step), "hi", session=session, hooks=session.hooks())
        await session.store_run_usage(result)
        assert (await session.get_session_usage())["requests"] == 1

    ours(story)


def test_a_response_whose_items_were_never_stored_is_recorded_at_the_next_call(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        from agents import RunContextWrapper
        from agents.testing import ScriptedModel

        session, context = make(), RunContextWrapper(context=None)
        hooks, clerk = session.hooks(), agent(answers("a"))
        given = {
            "system_instructions": None,
            "model_settings": clerk.model_settings,
            "tools": [],
            "output_schema": None,
        }
        assert isinstance(clerk.model, ScriptedModel)
        await hooks.on_llm_start(context, clerk, None, [])
        response = await clerk.model.get_response(
            input="x", handoffs=[], tracing=0, previous_response_id=None, conversation_id=None, prompt=None, **given
        )
        await hooks.on_llm_end(context, clerk, response)
        assert await session.get_session_usage() is None
        await hooks.on_llm_start(context, clerk, None, [])
        assert (await session.get_session_usage())["requests"] == 1

    ours(story)


def test_the_past_can_be_read_and_refuses_to_be_written_by_name(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make(session_settings={"limit": 3})
        await session.add_items([user("a"), said("b")])
        then = dt.datetime.now(dt.UTC)
        await session.clear_session()
        await session.add_items([user("c")])
        for at in (2, then):
            past = session.at(at)
            assert texts(await past.get_items()) == ["a", "b"]
            assert texts(await past.get_items(limit=1)) == ["b"]
            await past.add_items([])
            for name, write in (
                ("add_items", past.add_items([user("x")])),
                ("pop_item", past.pop_item()),
                ("clear_session", past.clear_session()),
            ):
                with pytest.raises(errors.InvalidItem, match=f"{name}: session 's' as of .* fork it"):
                    await write
        clerk = agent(answers("d"))
        with pytest.raises(errors.InvalidItem, match="add_items"):
            await Runner.run(clerk, "q", session=session.at(2))
        with pytest.raises(errors.InvalidItem, match="versions 1 to 4"):
            await session.at(9).get_items()
        assert texts(await session.get_items()) == ["c"]

    ours(story)


def test_branches_are_named_by_item_and_version_and_listed(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make(context="case-1", compaction=Packing(), session_settings={"limit": 7})
        await session.add_items([user("a"), said("b") | {"id": "msg_1"}, user("c"), said("d")])
        by_item = await session.fork("by-item", at_item="msg_1")
        assert texts(await by_item.get_items()) == ["a", "b"]
        assert by_item.session_settings == session.session_settings
        inner = await by_item.fork("inner", at=1)
        assert texts(await inner.get_items()) == ["a"]
        assert [(b.name, b.parent, b.fork_at) for b in await inner.branches()] == [
            ("s", None, None), ("inner", "s", 1), ("by-item", "s", 2),
        ]  # fmt: skip
        assert {b.context for b in await session.branches()} == {"case-1"}
        with pytest.raises(errors.InvalidItem, match="at_turn"):
            await session.fork("x", at=1, at_turn=1)
        with pytest.raises(errors.StreamNotFound):
            await make("nobody").fork("y")
        with pytest.raises(errors.StreamNotFound):
            await make("nobody").fork("y", at_turn=0)

    ours(story)


def test_turns_keep_their_numbers_through_a_compaction(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make(compaction=lambda items: [said("short")])
        for number in (1, 2, 3):
            await session.add_items([user(f"q{number}"), said(f"a{number}")])
        await session.run_compaction({"force": True})
        await session.add_items([user("q4"), said("a4")])
        assert [turn["content"] for turn in await session.get_conversation_turns()] == ["q1", "q2", "q3", "q4"]
        branch = await session.fork("b", at_turn=2)
        assert texts(await branch.get_items()) == ["q1", "a1", "q2", "a2"]
        whole = await session.fork("c", at_turn=3)
        assert texts(await whole.get_items()) == ["short"]

    ours(story)


def test_two_sources_of_one_history_are_refused_in_words_that_help(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        for given in (
            {"conversation_id": "conv_1"},
            {"previous_response_id": "resp_1"},
            {"auto_previous_response_id": True},
        ):
            name = next(iter(given))
            with pytest.raises(errors.ServerStateConflict, match=f"{name}=.*run without session="):
                session.hooks(**given)
            with pytest.raises(Exception, match="cannot be combined"):
                await Runner.run(agent(answers("a")), "q", session=session, **given)
        assert await session.get_items() == []
        result = await Runner.run(agent(answers("a")), "q", session=session)
        with pytest.raises(errors.ServerStateConflict, match="conv_1"):
            await session.store_run_usage(result, conversation_id="conv_1")
        with pytest.raises(errors.ServerStateConflict, match="previous_response_id"):
            await session.run_compaction({"compaction_mode": "previous_response_id"})

    ours(story)


def test_a_run_whose_history_the_provider_holds_is_recorded_with_its_ids(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        shelf = Shelf()
        clerk = agent(calls("look_up", "c1"), answers("a"), tools=[shelf.tool])
        result = await Runner.run(clerk, "q", previous_response_id="resp_0")
        await session.add_items(result.to_input_list())
        await session.store_run_usage(result, previous_response_id="resp_0")
        chat = await session.chat()
        recorded = [e.data async for e in chat.events(types=["response.recorded"])]
        assert [(r["response_id"], r["previous_response_id"]) for r in recorded] == [
            ("resp_c1", "resp_0"), ("resp_a", "resp_c1"),
        ]  # fmt: skip
        await chat.append([user("next")])
        told = await chat.model_input(server_state="response")
        assert (texts(told.items), told.previous_response_id) == (["next"], "resp_a")
        with pytest.raises(errors.ServerStateConflict, match="give one of them"):
            await session.store_run_usage(result, previous_response_id="resp_0", conversation_id="conv_1")
        other = make("t")
        await other.store_run_usage(result, conversation_id="conv_1")
        recorded = [e.data async for e in (await other.chat()).events(types=["response.recorded"])]
        assert {r["conversation_id"] for r in recorded} == {"conv_1"}

    ours(story)


def test_the_runner_compacts_after_a_turn_where_the_policy_says(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make(compaction=lambda items: [said(f"summary of {len(items)}")])
        for number in range(12):
            await Runner.run(agent(answers(f"a{number}")), f"q{number}", session=session)
        assert texts(await session.get_items()) == ["summary of 20", "q10", "a10", "q11", "a11"]
        plain = make()
        await plain.run_compaction()
        with pytest.raises(errors.InvalidItem, match="without a compactor"):
            await plain.run_compaction({"force": True})
        with pytest.raises(errors.InvalidItem, match="compaction"):
            make(compaction=3)

    ours(story)


def test_the_provider_can_compact_through_the_same_session(ours: Play[Any]) -> None:
    from types import SimpleNamespace

    from eventstore.compaction import ResponsesCompact

    sent: list[Any] = []

    async def compact(**given: Any) -> Any:
        sent.append(given)
        return SimpleNamespace(output=[user("q"), {"type": "compaction", "encrypted_content": "sealed"}], usage=None)

    client = SimpleNamespace(responses=SimpleNamespace(compact=compact))

    async def story(make: Make) -> None:
        session = make(compaction=ResponsesCompact(client, model="gpt-5"))
        history = [user("q"), *(said(str(number)) for number in range(10))]
        await session.add_items(history)
        await session.run_compaction({"response_id": "resp_1", "store": True})
        assert sent == [{"model": "gpt-5", "input": history}]
        assert kinds(await session.get_items()) == ["user", "compaction"]
        assert await (await session.chat()).originals() == history

    ours(story)


def test_a_store_is_opened_by_the_first_session_and_closed_with_the_last(url: str) -> None:
    async def story() -> None:
        store = AsyncEventStore.open(url)
        one, two = ConvstoreSession("s", store=store), ConvstoreSession("t", store=store)
        await asyncio.gather(*(session.add_items([user("a")]) for session in (one, two) for _ in range(5)))
        await one.close()
        await one.close()
        assert len(await two.get_items()) == 5
        await two.close()
        with pytest.raises(errors.StoreUnavailable):
            await two.get_items()

    asyncio.run(story())


def test_a_store_of_the_callers_stays_open(url: str) -> None:
    async def story() -> None:
        async with AsyncEventStore.open(url) as store:
            async with ConvstoreSession("s", store=store) as session:
                await session.add_items([user("a")])
            async with ConvstoreSession("s", store=store.for_tenant("default")) as again:
                assert texts(await again.get_items()) == ["a"]

    asyncio.run(story())


def test_another_event_loop_is_refused_by_name(url: str) -> None:
    session = ConvstoreSession("s", store=AsyncEventStore.open(url))
    asyncio.run(_add_and_close(session))

    async def again() -> None:
        with pytest.raises(errors.InvalidItem, match="another event loop"):
            await session.get_items()

    asyncio.run(again())


async def _add_and_close(session: ConvstoreSession) -> None:
    await session.add_items([user("a")])
    await session.close()


@pytest.mark.filterwarnings("ignore:asynchronous generator .* was scheduled after:ResourceWarning")  # by run_sync
def test_run_sync_again_and_again_uses_one_session(url: str) -> None:
    session = ConvstoreSession("s", store=AsyncEventStore.open(url))
    for number in range(3):
        Runner.run_sync(agent(answers(f"a{number}")), f"q{number}", session=session)
    loop = asyncio.get_event_loop_policy().get_event_loop()
    assert texts(loop.run_until_complete(session.get_items())) == ["q0", "a0", "q1", "a1", "q2", "a2"]
    loop.run_until_complete(session.close())
    loop.close()
    asyncio.set_event_loop(None)


def test_what_is_no_async_store_or_setting_is_refused(url: str, store: EventStore) -> None:
    for bad in (store, store.for_tenant("x"), url, None):
        with pytest.raises(errors.InvalidItem, match="AsyncEventStore"):
            ConvstoreSession("s", store=bad)  # type: ignore[arg-type]
    opened = AsyncEventStore.open(url)
    for settings in ({"limt": 3}, 3, "x"):
        with pytest.raises(errors.InvalidItem, match="session_settings"):
            ConvstoreSession("s", store=opened, session_settings=settings)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidName):
        ConvstoreSession("", store=opened)


def test_more_items_than_one_append_takes_are_all_or_none(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        with pytest.raises(errors.InvalidItem):
            await session.add_items([user("x")] * 15_000 + [user(float("nan"))])  # type: ignore[arg-type]
        assert await session.get_items() == []
        await session.add_items([user(str(number)) for number in range(15_000)])
        assert texts(await session.get_items(limit=2)) == ["14998", "14999"]
        assert await (await session.chat()).head() == 15_000

    ours(story)


def test_the_sdk_is_not_imported_with_the_product() -> None:
    code = (
        "import eventstore, eventstore.adapters.cli, sys; eventstore.adapters.cli.main; "
        "import eventstore.adapters.cli.commands; print('agents' in sys.modules, 'openai' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_without_the_sdk_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['agents'] = None\nimport eventstore.adapters.openai_agents"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'convstore[openai-agents]'" in ran.stderr


def test_call_and_output_of_a_resumed_turn_keep_their_agent(ours: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make().for_run("r")
        shelf = Shelf(approval=True)
        clerk = agent(calls("look_up", "c1"), answers("done"), tools=[shelf.tool])
        stopped = await Runner.run(clerk, "find it", session=session, hooks=session.hooks())
        state = stopped.to_state()
        state.approve(stopped.interruptions[0])
        await Runner.run(clerk, state, session=session, hooks=session.hooks())
        found = await events(session)
        assert [e.agent for e in found if e.type == "item.appended"] == [None, "clerk", "clerk", "clerk"]
        assert len({e.run_id for e in found}) == 1
        assert (await session.get_session_usage())["requests"] == 2
        assert seen(clerk)[-1]["type"] == "function_call_output"
        assert [call("c1")["type"], output("c1")["type"]] == [kind["type"] for kind in seen(clerk)[-2:]]

    ours(story)
