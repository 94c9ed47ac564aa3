"""What the SDK's runner relies on, held by our session and by the SDK's own."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Runner, Session, SessionSettings
from agents.testing import ModelStep
from scripts import (
    Make,
    Play,
    Recorded,
    Shelf,
    agent,
    answers,
    call,
    calls,
    kinds,
    output,
    reasoning,
    said,
    seen,
    texts,
    user,
)

ITEMS = [user("a"), reasoning(1), call("c1"), output("c1"), said("b"), {"type": "never_heard_of", "x": {"y": [1]}}]


def test_it_is_a_session(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make("s", session_settings={"limit": 3})
        assert isinstance(session, Session)
        assert session.session_id == "s"
        assert session.session_settings == SessionSettings(limit=3)
        assert make("s").session_settings == SessionSettings()

    each(story)


def test_items_come_back_equal_in_order_and_cut_to_exactly_the_last_n(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        assert await session.get_items() == []
        assert await session.get_items(limit=5) == []
        await session.add_items([])
        assert await session.get_items() == []
        await session.add_items(ITEMS[:2])
        await session.add_items(ITEMS[2:])
        assert await session.get_items() == ITEMS
        for limit in range(9):
            assert await session.get_items(limit) == ITEMS[len(ITEMS) - min(limit, len(ITEMS)) :], limit
        limited = make("s", session_settings={"limit": 2})
        assert await limited.get_items() == ITEMS[-2:]
        assert await limited.get_items(limit=4) == ITEMS[-4:]
        assert await limited.get_items(limit=0) == []

    each(story)


def test_pop_takes_the_last_and_clear_takes_all_of_one_session_alone(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session, other = make("s"), make("t")
        assert await session.pop_item() is None
        await session.clear_session()
        await other.add_items([user("stays")])
        await session.add_items(ITEMS)
        assert await session.pop_item() == ITEMS[-1]
        assert await session.get_items() == ITEMS[:-1]
        assert await session.get_items(limit=2) == ITEMS[-3:-1]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([user("again")])
        assert await session.get_items() == [user("again")]
        assert await other.get_items() == [user("stays")]

    each(story)


def test_a_run_reads_once_stores_the_input_before_the_model_and_one_batch_a_turn(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = Recorded(make())
        shelf = Shelf()
        before: list[Any] = []

        async def first(_: Any) -> Any:
            before.extend(await session._session.get_items())
            return calls("look_up", "c1")

        clerk = agent(ModelStep.respond(first), answers("done"), tools=[shelf.tool])
        await Runner.run(clerk, "find it", session=session)
        assert texts(before) == ["find it"]
        assert session.calls == [("get", 0), ("add", 1), ("add", 2), ("add", 1)]
        stored = await session._session.get_items()
        assert kinds(stored) == ["user", "function_call", "function_call_output", "assistant"]
        again = agent(answers("sure"))
        await Runner.run(again, "and now?", session=session)
        assert kinds(seen(again)) == [*kinds(stored), "user"]

    each(story)


def test_a_failed_run_keeps_its_input_and_the_next_sees_it(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        with pytest.raises(ConnectionError):
            await Runner.run(agent(ConnectionError("gone")), "hello?", session=session)
        assert await session.get_items() == [user("hello?")]
        clerk = agent(answers("here"))
        await Runner.run(clerk, "still there?", session=session)
        assert texts(seen(clerk)) == ["hello?", "still there?"]

    each(story)


def test_a_streamed_run_stores_the_same(each: Play[Any]) -> None:
    async def story(make: Make) -> list[str]:
        session = make()
        shelf = Shelf()
        clerk = agent(calls("look_up", "c1"), answers("done"), tools=[shelf.tool])
        streamed = Runner.run_streamed(clerk, "find it", session=session)
        async for _ in streamed.stream_events():
            pass
        return kinds(await session.get_items())

    assert each(story) == ["user", "function_call", "function_call_output", "assistant"]


def test_after_an_approval_the_tool_runs_once_and_its_output_is_stored_once(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make()
        shelf = Shelf(approval=True)
        clerk = agent(calls("look_up", "c1"), answers("done"), tools=[shelf.tool])
        stopped = await Runner.run(clerk, "find it", session=session)
        assert kinds(await session.get_items()) == ["user", "function_call"]
        state = stopped.to_state()
        state.approve(stopped.interruptions[0])
        ended = await Runner.run(clerk, state, session=session)
        assert ended.final_output == "done"
        assert shelf.ran == 1
        assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]

    each(story)


def test_a_limit_of_the_session_cuts_what_the_model_is_given(each: Play[Any]) -> None:
    async def story(make: Make) -> None:
        session = make(session_settings={"limit": 2})
        await session.add_items([user(str(number)) for number in range(5)])
        clerk = agent(answers("done"))
        await Runner.run(clerk, "now", session=session)
        assert texts(seen(clerk)) == ["3", "4", "now"]

    each(story)


def test_models_of_the_client_are_items_to_us_and_an_error_to_the_sdks_own(each: Play[Any]) -> None:
    from agents.testing import assistant_message

    from eventstore.adapters.openai_agents import ConvstoreSession

    async def story(make: Make) -> None:
        session = make()
        if not isinstance(session, ConvstoreSession):
            with pytest.raises(TypeError, match="not JSON serializable"):
                await session.add_items([assistant_message("hi")])
            return
        await session.add_items([assistant_message("hi"), {"role": "user", "content": ({"type": "input_text"},)}])
        found = await session.get_items()
        assert found[0]["content"][0]["text"] == "hi"
        assert found[1]["content"] == [{"type": "input_text"}]

    each(story)
