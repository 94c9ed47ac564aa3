"""What runs projections: their builds, the worker, parking and replaying, and waiting for them."""

from eventstore.projecting.rows import Build, Parked, ProjectionState, Replayed
from eventstore.projecting.runner import Runner
from eventstore.projecting.runner_async import AsyncRunner
from projections.projection import Projection, Statement
from projections.read_model import ReadModel

__all__ = [
    "AsyncRunner",
    "Build",
    "Parked",
    "Projection",
    "ProjectionState",
    "ReadModel",
    "Replayed",
    "Runner",
    "Statement",
]
