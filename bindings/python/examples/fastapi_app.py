"""A web service of which one instance also does the work: `uvicorn fastapi_app:app`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

import tenure

sent: list[int] = []


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    election = tenure.Election("web", store=os.environ["TENURE_STORE"], ttl=6)

    @election.lead
    async def send_invoices(reign: tenure.Reign) -> None:
        while True:
            sent.append(reign.term)
            await asyncio.sleep(0.2)

    app.state.election = election
    async with election:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/leader")
async def leader() -> dict[str, Any]:
    who = await app.state.election.current_leader()
    return {"leader": who.id if who else None, "me": app.state.election.id}
