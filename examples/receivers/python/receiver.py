"""Receives http actions of cronbox: verifies each request, and does the work of each run once.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    CRONBOX_SIGNING_SECRET=whsec_.. venv/bin/python receiver.py

RECEIVER_PORT is the port on 127.0.0.1 (8000; 0 takes a free one). RECEIVER_DB is the SQLite file of the runs that are done.
"""

import json
import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

# In bytes; cronbox sends less, because its API takes 256 KiB at most.
BODY_LIMIT = 1_048_576


def work(db, call):
    """Replace this by what the run is for. What it writes to `db` commits together with the run's id.

    From its first write on, other runs that write to SQLite wait: do what takes long before.
    """
    print(f"run {call['run_id']} of workflow {call['workflow_id']} for {call['scheduled_time']}", flush=True)


def receive(db, webhook, headers, body):
    """Returns the status and the answer. The run's id and its work commit together, or neither does."""
    try:
        # The body of an action may be other than JSON, so the library only verifies here.
        webhook.verify(body, headers, json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        # The library raises ValueError if a header or the body is malformed.
        return 401, {"error": str(error)}
    try:
        call = json.loads(body)
    except ValueError as error:
        return 400, {"error": str(error)}
    run_id = headers["webhook-id"]
    # A second attempt at the same moment waits here until the first one has ended; other runs do not.
    with turn_of(run_id):
        if db.execute("SELECT 1 FROM seen_runs WHERE id = ?", (run_id,)).fetchone():
            return 200, {"run_id": run_id, "repeated": True}
        with db:
            work(db, call)
            # Last, because SQLite has one writer at a time, and the work may take long.
            db.execute("INSERT INTO seen_runs (id) VALUES (?)", (run_id,))
    return 200, {"run_id": run_id, "repeated": False}


# The lock of each run that has requests, and how many requests that are; for one process.
turns = {}
turns_lock = threading.Lock()


@contextmanager
def turn_of(run_id):
    """Lets the requests of a run work one after the other."""
    with turns_lock:
        turn = turns.setdefault(run_id, {"lock": threading.Lock(), "requests": 0})
        turn["requests"] += 1
    try:
        with turn["lock"]:
            yield
    finally:
        with turns_lock:
            turn["requests"] -= 1
            if turn["requests"] == 0:
                del turns[run_id]


class Receiver(BaseHTTPRequestHandler):
    """Answers POST at any path."""

    webhook: Webhook
    database: str

    def do_POST(self):
        length = int(self.headers.get("content-length", "0"))
        if length > BODY_LIMIT:
            self.answer(413, {"error": f"the body has more than {BODY_LIMIT} bytes"})
            return
        body = self.rfile.read(length)
        try:
            with closing(connect(self.database)) as db:
                status, answer = receive(db, self.webhook, self.headers, body)
        except Exception as error:
            # cronbox tries again, up to the workflow's max_attempts.
            status, answer = 500, {"error": str(error)}
        self.answer(status, answer)

    def answer(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """`work` prints a line for each run."""


def connect(database):
    # The timeout in seconds is how long a write waits for that of another run.
    return sqlite3.connect(database, timeout=60)


def main():
    Receiver.webhook = Webhook(os.environ["CRONBOX_SIGNING_SECRET"])
    Receiver.database = os.environ.get("RECEIVER_DB", "runs.sqlite3")
    with closing(connect(Receiver.database)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS seen_runs (id TEXT PRIMARY KEY)")
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("RECEIVER_PORT", "8000"))), Receiver)
    print(f"receiver listens on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
