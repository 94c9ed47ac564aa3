"""The demo's chapters on a conversation: forked, compacted, replayed, and what a model saw of it."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore import Conversation, EventStore
from eventstore.adapters.cli import output
from eventstore.adapters.cli.branching import drawn
from eventstore.adapters.cli.demo_story import Story
from eventstore.adapters.cli.rendering import item_text
from eventstore.compaction import Packing
from eventstore.log.events import Json

_BOOK = {"role": "user", "content": "Go on as planned."}
_OTHER = {"role": "user", "content": "And what if we wait a week?"}
_LATER = {"role": "user", "content": "Thanks, that settles it."}
_WIDTH = 76


def fork(story: Story, store: EventStore, chat: Conversation) -> Conversation:
    """Branch off in the middle, go on on both sides, and show the family and the difference."""
    half = max(chat.head() // 2, 1)
    before = [event.data for event in chat.events()]
    name = f"{chat.name}-plan-b"
    story.begin()
    branch = chat.fork(name, at=half)
    story.tell("fork", f"{name} branches off {chat.name} at version {half}: nothing copied, head {branch.head()}")
    chat.append(_BOOK, key="main-goes-on")
    branch.append([_OTHER, _LATER], key="branch-goes-on")
    mine = [event.data for event in chat.events()]
    its = [event.data for event in branch.events()]
    ok = mine == [*before, _BOOK] and its[:half] == before[:half] and its[half + 1 :] == [_OTHER, _LATER]
    text = f"{len(mine)} events on one side, {len(its)} on the other, {half} of them shared, neither sees the other's"
    story.tell("go on", text, ok=ok)
    again = chat.fork(name, at=half).head() == branch.head()
    story.tell("repeat", f"the same fork again gives the branch: {again}", ok=again)
    family = chat.family()
    parts = branch.lineage()
    ok = [(part.stream, part.last) for part in parts] == [(chat.name, half), (name, branch.head())]
    story.tell("tree", f"convstore tree {chat.name}", ok=ok)
    if not story.quiet:
        for stream, text in drawn(family):
            at = "" if stream.fork_at is None else f" @{stream.fork_at}"
            output.say(f"      {text}{output.line(stream.name)}{at}  {output.events(stream.head)}")
    story.tell("diff", f"convstore diff {chat.name} {name}: {output.events(half)} in common")
    if not story.quiet:
        for side in (chat, branch):
            for event in side.events(half + 1):
                output.say(f"      {output.line(side.name)}@{event.version}  {_short(event.data)}")
                if event.version > half + 2:
                    break
    report = store.verify(name)
    text = f"{name} with its ancestry: {output.events(report.checked)}, {'ok' if report.ok else report.first_bad}"
    story.tell("verify", text, ok=report.ok and report.checked == branch.head())
    return branch


def compact(story: Story, chat: Conversation) -> list[str]:
    """Compact, fork inside the compacted range, replay at three moments, and render what a model saw."""
    full, originals, before = chat.transcript(), chat.originals(), chat.head()
    story.begin()
    done = chat.compact(Packing(max_bytes=4000, short=40), keep_last=4, key="demo-compaction")
    if done is None:
        story.tell("compact", "this conversation is too short to be compacted")
        return []
    shorter = chat.transcript()
    ok = chat.originals() == originals and len(shorter) < len(full)
    text = (
        f"versions {done.covers[0]} to {done.covers[1]} are shown as {len(shorter) - 4} items: "
        f"{done.source_bytes:,} bytes to {done.summary_bytes:,}; the {len(originals)} originals are all there"
    )
    story.tell("compact", text, ok=ok)
    inside = (done.covers[0] + done.covers[1]) // 2
    branch = chat.fork(f"{chat.name}-inside", at=inside)
    branch.append(_OTHER, key="inside")
    then = chat.transcript(at=inside)
    ok = branch.transcript() == [*then, _OTHER]
    story.tell(
        "fork", f"{branch.name} branches off inside the compacted range, at {inside}, and shows originals", ok=ok
    )
    moments = {inside: len(then), before: len(full), chat.head(): len(shorter)}
    ok = [len(chat.transcript(at=version)) for version in moments] == list(moments.values())
    shown = ", ".join(f"{count} items at {version}" for version, count in moments.items())
    story.tell("replay", f"the transcript as it was: {shown}", ok=ok and chat.transcript(at=before) == full)
    _seen(story, chat)
    popped = chat.pop(key="demo-pop")
    ok = chat.pop(key="demo-pop") == popped and chat.transcript(at=chat.head() - 1)[-1] == popped
    story.tell("pop", f"taken out of the transcript, kept in the log: {_short(popped)}", ok=ok)
    return [branch.name]


def _seen(story: Story, chat: Conversation) -> None:
    seen = chat.model_input(limit=6, pair_safe=True)
    chat.responses.record(
        "resp_demo_1", receipt=seen.receipt, model="some-model", usage={"input_tokens": 1234}, key="demo-r"
    )
    chat.append(_LATER, key="after-the-response")
    again = chat.responses.seen("resp_demo_1")
    ok = again.same and again.items == seen.items
    text = f"resp_demo_1 was given these {len(seen.items)} items, byte for byte (sha256 {seen.receipt.sha256[:12]}…)"
    story.tell("seen", text, ok=ok)
    if not story.quiet:
        for item in again.items:
            output.say(f"      {_short(item)}")


def _short(item: Json) -> str:
    text = output.line(item_text(item) or output.compact(item))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def streams(chat: Conversation, branch: Conversation, more: Sequence[str]) -> list[str]:
    """Name the streams that the chapters wrote to."""
    return [chat.name, branch.name, *more]
