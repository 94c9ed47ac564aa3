"""Settings from the environment, ``CONVSTORE_*``; what a call gives goes first."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """How to reach the store, and how a client behaves."""

    model_config = SettingsConfigDict(env_prefix="CONVSTORE_", env_ignore_empty=True, extra="ignore", frozen=True)

    url: str | None = Field(None, description="libpq URL; unset: the embedded Postgres")
    home: Path | None = Field(None, description="folder of the embedded Postgres")
    tenant: str = Field("default", description="tenant where a call names none")
    pool_size: int = Field(8, ge=1, le=1000, description="connections a store opens at most")
    prepare: bool = Field(
        False,
        description="named prepared statements: faster, not for a pooler in transaction mode before pgbouncer 1.21",
    )
    hint: bool = Field(
        False,
        description="after appends, tell subscriptions with hint=True, from one more connection",
    )
