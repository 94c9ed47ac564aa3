"""The OpenAI Agents SDK on the store: its ``Session``, compaction, branches, handoffs and usage."""

try:
    import agents  # noqa: F401
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "eventstore.adapters.openai_agents needs the OpenAI Agents SDK: pip install 'convstore[openai-agents]'",
        name=e.name,
    ) from e

from eventstore.adapters.openai_agents.compaction import CompactionSettings
from eventstore.adapters.openai_agents.handoffs import handoff_filter, history_mapper
from eventstore.adapters.openai_agents.past import PastSession
from eventstore.adapters.openai_agents.runs import SessionHooks
from eventstore.adapters.openai_agents.session import ConvstoreSession

__all__ = [
    "CompactionSettings",
    "ConvstoreSession",
    "PastSession",
    "SessionHooks",
    "handoff_filter",
    "history_mapper",
]
