"""What tests of handoffs need around them: tasks, artifacts and effects, as events."""

from __future__ import annotations

from typing import Any

from eventstore import Event

GIVEN = {"goal": "answer the customer", "success": "the answer is published"}


def open_task(chat: Any, task_id: str = "t1", **more: Any) -> None:
    data = {"task_id": task_id, "goal": "g"} | more
    chat.append_events([Event(type="task.opened", data=data, subject=task_id)])


def set_task(chat: Any, status: str, task_id: str = "t1") -> None:
    data = {"task_id": task_id, "status": status}
    chat.append_events([Event(type="task.changed", data=data, subject=task_id)])


def publish(chat: Any, version: int, uri: str = "store://answer", **more: Any) -> None:
    data = {"name": "draft", "uri": uri, "version": version} | more
    chat.append_events([Event(type="artifact.published", data=data, subject=uri)])


def happen(chat: Any, key: str, tool: str = "refund", result: Any = None) -> None:
    intended = {
        "key": key,
        "tool": tool,
        "arguments": {},
        "arguments_sha256": "0" * 64,
        "attempt": 1,
        "lease": 60.0,
    }
    done = {"key": key, "attempt": 1, "result": result}
    chat.append_events(
        [
            Event(type="effect.intended", data=intended, subject=key),
            Event(type="effect.succeeded", data=done, subject=key),
        ]
    )


def begin(store: Any, name: str = "c", context: str | None = "ctx") -> Any:
    """Begin a conversation that has all that a handoff needs."""
    chat = store.conversation(name, context=context)
    chat.append([{"role": "user", "content": "help"}], agent="user")
    open_task(chat)
    publish(chat, 1)
    chat.facts.constrain("official sources only")
    return chat


def hand(chat: Any, to: str, agent: str = "writer", **fields: Any) -> Any:
    """Draft, offer and accept; return the envelope."""
    env = chat.handoffs.draft(**(GIVEN | {"to": to, "agent": agent} | fields))
    chat.handoffs.offer(env)
    chat.handoffs.accept(env.handoff_id, by=to)
    return env
