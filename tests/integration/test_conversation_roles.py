"""Which logins may read and change a conversation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventstore import EventStore
from eventstore.errors import NotPermitted, TenantRequired


def test_a_reader_reads_and_changes_nothing(filled: EventStore, make_login: Callable[..., str]) -> None:
    with EventStore.open(make_login("reader", "acme"), tenant="acme") as store:
        chat = store.conversation("a")
        assert chat.transcript() == chat.originals() == ["acme secret", 2]
        assert chat.transcript(limit=1) == chat.model_input(limit=1).items == [2]
        changes = [
            chat.pop,
            lambda: chat.retract(versions=[(1, 1)]),
            chat.clear,
            lambda: chat.compact(lambda items: ["short"]),
            lambda: chat.responses.record("r"),
        ]
        for change in changes:
            with pytest.raises(NotPermitted, match="convstore_writer"):
                change()
        assert chat.transcript() == ["acme secret", 2]
        rival = store.for_tenant("rival").conversation("a")
        for read in (rival.transcript, rival.originals, rival.pop):
            with pytest.raises(TenantRequired):
                read()


def test_a_writer_changes_its_own_tenants_conversations(filled: EventStore, make_login: Callable[..., str]) -> None:
    with EventStore.open(make_login("writer", "acme"), tenant="acme") as store:
        chat = store.conversation("a")
        assert chat.pop() == 2
        chat.append([3, 4])
        assert chat.compact(lambda items: [len(items)], keep_last=1) is not None
        assert chat.transcript() == [2, 4]
        chat.responses.record("r", receipt=chat.model_input().receipt)
        assert chat.responses.seen("r").same
        assert chat.clear() is not None
        with pytest.raises(NotPermitted, match="convstore_auditor"):
            store.verify()
    rival = filled.for_tenant("rival").conversation("a")
    assert rival.transcript() == ["rival secret", 2]


def test_an_auditor_verifies_the_checkpoints_too(filled: EventStore, make_login: Callable[..., str]) -> None:
    chat = filled.for_tenant("acme").conversation("a")
    for n in range(70):
        chat.append([n])
        chat.pop()
    with EventStore.open(make_login("auditor", "acme"), tenant="acme") as store:
        assert store.verify().ok
        assert store.verify("a").ok
        with pytest.raises(TenantRequired):
            store.for_tenant("rival").verify()
