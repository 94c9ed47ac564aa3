from eventstore import EventStore


def test_append_and_read(store: EventStore) -> None:
    chat = store.conversation("a")
    chat.append([1, {"x": 2**80}])
    assert [e.data for e in chat.events()] == [1, {"x": 2**80}]
    assert store.verify().ok
