"""The demo's chapter on handing over: a refund goes from triage to refunds, the supervisor and legal, and back."""

from __future__ import annotations

from typing import Final

from eventstore import Artifact, Conversation, EventStore
from eventstore.adapters.cli import output
from eventstore.adapters.cli.demo_story import Story
from eventstore.errors import HandoffRefused

CASE: Final = "store://cases/K-20417"
TOLD: Final = {
    "goal": "settle order K-20417",
    "success": "the money is back, or the customer knows why not",
}


def refund(story: Story, store: EventStore, number: str) -> Conversation:
    """Tell the story on a conversation of its own."""
    chat = store.conversation(f"refund-{number}", context=f"case-{number}")
    task = f"refund-{number}"
    story.begin()
    chat.append(
        {"role": "user", "content": "The bowl of order K-20417 is cracked. My money back, please."}, agent="user"
    )
    chat.tasks.open(task, goal=TOLD["goal"], agent="triage")
    chat.facts.constrain("refund only what is damaged and was delivered less than 30 days ago", agent="triage")
    looked = chat.append(
        {"type": "function_call_output", "call_id": "1", "output": "delivered 9 days ago"}, agent="triage"
    )
    chat.facts.confirm("delivered 9 days ago", evidence=[looked.first_version], agent="triage")
    _guess(story, chat)
    chat.artifacts.publish(_case(1, "what the customer says"), agent="triage")
    _hand(story, chat, "triage", "refunds")
    paid: list[int] = []
    for _ in range(2):
        chat.effects.run("payments.refund", lambda: _pay(paid), key=f"refund-{number}", arguments={"cents": 6450})
    text = f"payments.refund was asked for twice under one key and ran {len(paid)} time"
    story.tell("effect", text, ok=len(paid) == 1)
    chat.artifacts.publish(_case(2, "with the refund"), agent="refunds")
    _hand(story, chat, "refunds", "supervisor")
    third = _hand(story, chat, "supervisor", "legal", accept=True)
    chat.effects.run("mail.letter", lambda: "sent", key=f"letter-{number}", arguments={"to": "customer"})
    chat.artifacts.publish(_case(3, "with the letter"), agent="legal")
    failed = chat.handoffs.fail(third, "the letter names the wrong customer", by="legal")
    back = chat.handoffs.roll_back()
    names = ", ".join(f"{each.uri} version {each.version}" for each in back.artifacts)
    effects = ", ".join(each.key for each in back.effects)
    ok = [each.version for each in back.artifacts] == [2] and f"letter-{number}" in effects
    text = f"legal failed ({failed.reason}): back to {names}, task {dict(back.tasks)}, to be compensated: {effects}"
    story.tell("roll back", text, ok=ok)
    _view(story, chat)
    return chat


def _case(version: int, summary: str) -> Artifact:
    return Artifact(uri=CASE, version=version, name="case", summary=summary)


def _pay(paid: list[int]) -> str:
    paid.append(1)
    return "R-9058"


def _guess(story: Story, chat: Conversation) -> None:
    try:
        env = chat.handoffs.draft(**TOLD, to="refunds", agent="triage", decisions=["the supervisor will agree"])
        chat.handoffs.offer(env, allow_incomplete=True)
    except HandoffRefused as e:
        story.tell("guess", f"a decision without evidence does not cross: {e}", ok=e.field.startswith("decisions"))
    else:
        story.tell("guess", "a decision without evidence crossed", ok=False)


def _hand(story: Story, chat: Conversation, agent: str, to: str, *, accept: bool = False) -> str:
    """Draft, offer, accept twice and, unless the work is to go on, commit."""
    env = chat.handoffs.draft(**TOLD, to=to, agent=agent)
    offered = chat.handoffs.offer(env, allow_incomplete=bool(env.check()))
    first, again = (chat.handoffs.accept(offered.handoff_id, by=to) for _ in range(2))
    size = len(output.dump(env.as_json()))
    view = chat.handoff_view(format="numbered")
    crossed = f"{len(env.constraints)} constraints, {len(env.decisions)} decisions, {len(env.artifacts)} artifacts"
    text = (
        f"{agent} → {to}: an envelope of {size:,} bytes ({crossed}), a view of {len(view.provenance)} items in "
        f"{view.bytes:,} bytes; accepted once"
    )
    story.tell("hand over", text, ok=again.deduplicated and again.ack_id == first.ack_id)
    if not accept:
        chat.handoffs.commit(offered.handoff_id)
    return offered.handoff_id


def _view(story: Story, chat: Conversation) -> None:
    view = chat.handoff_view(budget={"bytes": 400})
    kept = [str(item.get("content", ""))[:60] for item in view.items if isinstance(item, dict)]
    ok = bool(kept) and kept[0].startswith("Constraint:") and view.bytes <= 400
    left = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in view.trimmed.items()) or "nothing"
    story.tell("budget", f"within 400 bytes the view keeps constraints and decisions first; left out: {left}", ok=ok)
