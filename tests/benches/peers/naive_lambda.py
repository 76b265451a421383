"""The two naive Lambdas: the peers of the cold start benchmark (B8).

They have every advantage that costs nothing: a bare loop on the runtime API instead of Lambda's own runtime, a client that
is made once, and a runner that uses only the standard library.
"""

import http.client
import json
import os
import sys

NEXT = "/2018-06-01/runtime/invocation/"


def publisher():
    """As naive_publisher.py: makes EventBridge's client at the start, and connects to the database in each invocation."""
    import boto3
    import psycopg

    boto3.client("scheduler")

    def drain(_event):
        with psycopg.connect(os.environ["CRONBOX_DB_DSN"]) as database:
            row = database.execute(
                "SELECT o.id, w.id, w.cron_schedule FROM outbox_events o JOIN workflows w ON w.id = o.aggregate_id"
                " WHERE o.processed_on IS NULL ORDER BY o.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED"
            ).fetchone()
        return {"processed": 0 if row is None else 1}

    return drain


def runner():
    import urllib.request

    def deliver(fire):
        url = f"{os.environ['CRONBOX_APP_BASE_URL']}/api/v1/cron/workflows/{fire['workflow_id']}:invoke"
        headers = {"X-API-Key": os.environ["CRONBOX_SCHEDULER_API_KEY"], "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(fire).encode(), headers)) as answer:
            return json.load(answer)

    return deliver


def serve(handle):
    lambda_api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    while True:
        lambda_api.request("GET", NEXT + "next")
        invocation = lambda_api.getresponse()
        event = json.load(invocation)
        answer = json.dumps(handle(event))
        lambda_api.request("POST", f"{NEXT}{invocation.headers['lambda-runtime-aws-request-id']}/response", answer)
        lambda_api.getresponse().read()


serve({"publisher": publisher, "runner": runner}[sys.argv[1]]())
