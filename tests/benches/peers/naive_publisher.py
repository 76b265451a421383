"""The naive publisher: one row at a time, create, and update on conflict.

The peer of the drain benchmark. It keeps a row locked during the call to AWS, as is common, and it has
every advantage that costs nothing: one connection and one client, both kept alive.
"""

import json
import os
import sys
import time

import boto3
import psycopg
from botocore.config import Config

GROUP = os.environ["CRONBOX_SCHEDULE_GROUP"]


def put(scheduler, workflow_id, cron):
    minute, hour = cron.split()[:2]
    schedule = {
        "Name": f"wf-{workflow_id}-bench",
        "GroupName": GROUP,
        "ScheduleExpression": f"cron({minute} {hour} * * ? *)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": os.environ["CRONBOX_RUNNER_LAMBDA_ARN"],
            "RoleArn": os.environ["CRONBOX_SCHEDULER_ROLE_ARN"],
            "Input": json.dumps({"workflow_id": workflow_id}),
        },
    }
    try:
        scheduler.create_schedule(**schedule)
    except scheduler.exceptions.ConflictException:
        scheduler.update_schedule(**schedule)


def main(rows):
    scheduler = boto3.client("scheduler", config=Config(retries={"max_attempts": 1}))
    done, begun = 0, time.monotonic()
    with psycopg.connect(os.environ["CRONBOX_DB_DSN"]) as database:
        while done < rows:
            with database.transaction():
                row = database.execute(
                    "SELECT o.id, w.id, w.cron_schedule FROM outbox_events o JOIN workflows w ON w.id = o.aggregate_id"
                    " WHERE o.processed_on IS NULL ORDER BY o.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED"
                ).fetchone()
                if row is None:
                    break
                put(scheduler, row[1], row[2])
                database.execute(
                    "UPDATE outbox_events SET processed_on = now() WHERE id = %s AND processed_on IS NULL", (row[0],)
                )
            done += 1
    print(json.dumps({"rows": done, "secs": time.monotonic() - begun}))


main(int(sys.argv[1]))
