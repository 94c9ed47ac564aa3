"""Artifacts: a version is published once in its context; the latest and regressions are judged along the lineage."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from contract import Driver
from test_contract_tasks import Unmoved

from eventstore import Artifact, Event
from eventstore.errors import ArtifactConflict, InvalidEvent, InvalidItem, UniqueKeyConflict

URI = "s3://bucket/report.md"


def made(version: int, digest: str | None = None, uri: str = URI, **more: Any) -> Artifact:
    return Artifact(uri, version, "report", digest, **more)


@pytest.fixture
def chat(any_store: Any) -> Any:
    """A conversation with an item."""
    chat = any_store.conversation("s", context="c")
    chat.append(["before"])
    return chat


def seen(artifacts: Any) -> list[tuple[str, int, bool, bool]]:
    return [(a.uri, a.version, a.regression, a.latest) for a in artifacts]


def test_what_is_published_is_listed_with_where_it_came_from(any_store: Any, chat: Any) -> None:
    chat.tasks.open("t", goal="g")
    artifact = made(1, "sha256:1", summary="first", derived_from=["https://example.org", {"version": 1}])
    done = chat.artifacts.publish(artifact, agent="ann", task_id="t")
    assert done.artifact == artifact
    assert (done.stream, done.stream_version, done.agent, done.task_id) == ("s", 3, "ann", "t")
    assert (done.regression, done.latest, done.deduplicated) == (False, True, False)
    assert chat.artifacts.list() == [done]
    assert chat.artifacts.latest(URI) == done
    assert chat.artifacts.get(URI, 1) == done
    assert chat.artifacts.latest("other") is None
    assert chat.artifacts.get(URI, 2) is None
    event = next(iter(chat.events(3)))
    assert (event.subject, event.unique_key) == (URI, f"artifact 1 {URI}")
    assert any_store.verify().ok


def test_the_same_again_is_a_repeat_and_anything_else_a_conflict(
    any_store: Any, chat: Any, contract_db: psycopg.Connection
) -> None:
    given = made(1, "sha256:1", summary="s", derived_from=["x"])
    first = chat.artifacts.publish(given, key="k")
    branch = chat.fork("branch", at=1)
    with Unmoved(contract_db):
        for view in (chat, branch):
            for key in (None, "other"):
                again = view.artifacts.publish(given, agent="somebody", key=key)
                assert again.deduplicated
                assert (again.stream, again.stream_version, again.agent) == ("s", first.stream_version, None)
            for field, other, stored in [
                ("digest", made(1, "sha256:2", summary="s", derived_from=["x"]), "sha256:1"),
                ("digest", made(1, summary="s", derived_from=["x"]), "sha256:1"),
                ("summary", made(1, "sha256:1", derived_from=["x"]), "s"),
                ("derived_from", made(1, "sha256:1", summary="s"), ["x"]),
                ("name", Artifact(URI, 1, "other", "sha256:1", "s", ["x"]), "report"),
            ]:
                with pytest.raises(ArtifactConflict) as caught:
                    view.artifacts.publish(other)
                e = caught.value
                assert (e.uri, e.version, e.field, e.stored, e.context) == (URI, 1, field, stored, "c")
                assert e.given == (getattr(other, field) or None)
                assert repr(e.stored) in str(e)
                assert repr(e.given) in str(e)
        assert chat.artifacts.publish(given, key="k").deduplicated
    assert any_store.conversation("elsewhere", context="d").artifacts.publish(made(1, "sha256:2")).latest
    rival = any_store.for_tenant(any_store.tenant + "-rival").conversation("s", context="c")
    assert rival.artifacts.publish(made(1, "sha256:2")).latest
    assert rival.artifacts.list() != chat.artifacts.list()


def test_latest_and_regression_are_judged_along_the_lineage(chat: Any) -> None:
    chat.artifacts.publish(made(1))  # 2
    chat.artifacts.publish(made(5))  # 3
    branch = chat.fork("branch", at=2)  # inherits 1
    assert seen(branch.artifacts.list()) == [(URI, 1, False, True)]
    assert not branch.artifacts.publish(made(2)).regression
    back = chat.artifacts.publish(made(4))
    assert (back.regression, back.latest) == (True, False)
    assert chat.artifacts.publish(made(6, uri="other")).latest
    assert seen(chat.artifacts.list()) == [
        (URI, 1, False, False),
        (URI, 5, False, True),
        (URI, 4, True, False),
        ("other", 6, False, True),
    ]
    assert seen(branch.artifacts.list()) == [(URI, 1, False, False), (URI, 2, False, True)]
    assert chat.artifacts.latest(URI).version == 5
    assert branch.artifacts.latest(URI).version == 2
    assert [seen(chat.artifacts.list(at=at)) for at in (0, 1, 2, 3)] == [
        [],
        [],
        [(URI, 1, False, True)],
        [(URI, 1, False, False), (URI, 5, False, True)],
    ]
    assert seen(branch.artifacts.list(at=2)) == [(URI, 1, False, True)]
    moment = chat.artifacts.list()[0].recorded_at
    assert seen(chat.artifacts.list(at=moment)) == [(URI, 1, False, True)]
    for bad in (99, -1, "1", moment.replace(tzinfo=None)):
        with pytest.raises(InvalidItem, match="at"):
            chat.artifacts.list(at=bad)


def test_what_it_is_derived_from_has_to_be_published_in_the_context(
    any_store: Any, chat: Any, contract_db: psycopg.Connection
) -> None:
    one = made(1)
    branch = chat.fork("branch")
    branch.artifacts.publish(one)
    any_store.conversation("elsewhere", context="d").artifacts.publish(made(9))
    with Unmoved(contract_db):
        for version in (2, 9):
            for source in (made(version), (URI, version), {"uri": URI, "version": version}):
                with pytest.raises(InvalidItem, match=rf"derived_from\[1\].*version {version}"):
                    chat.artifacts.publish(made(3, derived_from=[one, source]))
    done = chat.artifacts.publish(made(3, derived_from=[one, (URI, 1)]))
    assert done.derived_from == [{"uri": URI, "version": 1}] * 2
    assert branch.artifacts.publish(made(4, derived_from=[done.artifact])).derived_from == [{"uri": URI, "version": 3}]


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        ({"uri": "data:text/plain,hello"}, "artifact.uri", "data: URI"),
        ({"uri": "DATA:;base64,aGk="}, "artifact.uri", "data: URI"),
        ({"uri": "x" * 2049}, "artifact.uri", "body"),
        ({"uri": ""}, "artifact.uri", "empty"),
        ({"uri": 1}, "artifact.uri", "text"),
        ({"version": 0}, "artifact.version", "1"),
        ({"version": "1"}, "artifact.version", "integer"),
        ({"name": "n" * 513}, "artifact.name", "512"),
        ({"digest": "d" * 257}, "artifact.digest", "256"),
        ({"summary": "é" * 2049}, "artifact.summary", "4,096 bytes, not 4,098"),
        ({"derived_from": "x"}, "artifact.derived_from", "list"),
        ({"derived_from": [{"uri": "x"}]}, "artifact.derived_from", ""),
        ({"derived_from": [("x", 0)]}, "artifact.derived_from", ""),
    ],
)
def test_a_body_and_whatever_is_no_reference_is_refused(fields: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        Artifact(**{"uri": URI, "version": 1, "name": "n", **fields})
    assert caught.value.path.startswith(path)
    assert reason in caught.value.reason


def test_events_of_artifacts_appended_by_hand_keep_the_rules(chat: Any, contract_db: psycopg.Connection) -> None:
    def event(version: int, **more: Any) -> Event:
        return Event(type="artifact.published", data={"uri": URI, "version": version, "name": "n"}, **more)

    chat.append_events([event(1)])
    with Unmoved(contract_db):
        with pytest.raises(UniqueKeyConflict):
            chat.append_events([event(2), event(1)])
        with pytest.raises(InvalidEvent, match="twice"):
            chat.append_events([event(2), event(2)])
        with pytest.raises(InvalidEvent, match="unique_key"):
            chat.append_events([event(2, unique_key="mine")])
        with pytest.raises(InvalidEvent, match="data"):
            chat.append_events([Event(type="artifact.published", data={"uri": "data:,x", "version": 1, "name": "n"})])
        with pytest.raises(InvalidItem, match="Artifact"):
            chat.artifacts.publish({"uri": URI, "version": 2, "name": "n"})
    assert chat.artifacts.publish(Artifact(URI, 1, "n")).deduplicated


def test_any_uri_will_do(any_store: Any, chat: Any) -> None:
    for uri in ("u" * 2048, "\x00\ud800", "é" * 300, "artifact 1 x"):
        done = chat.artifacts.publish(made(1, "d", uri=uri))
        assert done.uri == uri
        assert chat.artifacts.publish(made(1, "d", uri=uri)).deduplicated
        assert chat.artifacts.latest(uri) == done
        with pytest.raises(ArtifactConflict):
            chat.artifacts.publish(made(1, "e", uri=uri))
    assert any_store.verify().ok


def test_in_the_callers_transaction_a_conflict_leaves_it_alive(any_store: Any, chat: Any, driver: Driver) -> None:
    chat.artifacts.publish(made(1, "a"))
    with driver.connect() as conn:
        mine = any_store.using(conn).conversation("s")
        with pytest.raises(ArtifactConflict):
            mine.artifacts.publish(made(1, "b"))
        assert mine.artifacts.publish(made(1, "a")).deduplicated
        assert mine.artifacts.publish(made(2, "b")).latest
        conn.rollback()
    assert chat.artifacts.get(URI, 2) is None
