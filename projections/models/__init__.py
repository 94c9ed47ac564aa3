"""The read models that ship with the store, one module each: its fold, and its table."""

from typing import Final

from projections.models.branches import Branches
from projections.models.compactions import Compactions
from projections.models.conversations import Conversations
from projections.models.responses import Responses
from projections.projection import Projection

SHIPPED: Final[tuple[Projection, ...]] = (Conversations(), Branches(), Responses(), Compactions())

__all__ = ["SHIPPED", "Branches", "Compactions", "Conversations", "Responses"]
