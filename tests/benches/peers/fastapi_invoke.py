"""The naive :invoke: FastAPI, a TTL cache in front, and a UNIQUE constraint that decides."""

import os
from contextlib import asynccontextmanager
from datetime import datetime

from cachetools import TTLCache
from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

pool = AsyncConnectionPool(os.environ["CRONBOX_DB_DSN"], min_size=16, max_size=16, open=False)
cache: TTLCache = TTLCache(maxsize=100_000, ttl=1800)


@asynccontextmanager
async def lifespan(_: FastAPI):
    await pool.open()
    async with pool.connection() as connection:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS peer_runs (id bigserial PRIMARY KEY, workflow_id bigint NOT NULL,"
            " scheduled_time timestamptz NOT NULL, UNIQUE (workflow_id, scheduled_time))"
        )
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan)


class Fire(BaseModel):
    scheduled_time: datetime


@app.post("/api/v1/cron/workflows/{workflow_id}:invoke")
async def invoke(workflow_id: int, fire: Fire, x_api_key: str = Header()):
    if x_api_key != os.environ["API_KEY"]:
        raise HTTPException(401)
    key = (workflow_id, fire.scheduled_time.replace(second=0, microsecond=0))
    if run := cache.get(key):
        return {"accepted": False, "reason": "duplicate", "run_id": run}
    async with pool.connection() as connection:
        cursor = await connection.execute(
            "INSERT INTO peer_runs (workflow_id, scheduled_time) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING id", key
        )
        row = await cursor.fetchone()
        accepted = row is not None
        if not accepted:
            cursor = await connection.execute(
                "SELECT id FROM peer_runs WHERE workflow_id = %s AND scheduled_time = %s", key
            )
            row = await cursor.fetchone()
    cache[key] = row[0]
    return JSONResponse({"accepted": accepted, "run_id": row[0]}, 202 if accepted else 200)


@app.get("/readyz")
async def readyz():
    return {}
