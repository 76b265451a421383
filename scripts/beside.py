#!/usr/bin/env python3
"""Executes two commands at once: `beside.py LOG BESIDE MAIN`.

BESIDE has a low priority, so it takes the processors mostly while MAIN waits. What it prints is in the file LOG, and is printed after
MAIN has ended. If MAIN fails or is stopped, BESIDE is stopped with all processes that it started. The exit code is that of the first one
that fails.
"""

import os
import pathlib
import signal
import subprocess
import sys


def stop(beside: subprocess.Popen) -> None:
    """Stops the command and what it started, which are a process group of their own."""
    if beside.poll() is None:
        os.killpg(beside.pid, signal.SIGTERM)
        beside.wait()


def main(log: str, beside_command: str, main_command: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pathlib.Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        # A tenth of what MAIN gets: enough that a process of BESIDE which must answer within a minute does so.
        niced = ["nice", "-n", "10", "sh", "-c", beside_command]
        # In a session of its own it would have half of the processors, because Linux compares priorities within a session.
        beside = subprocess.Popen(niced, stdout=output, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp)
    try:
        if code := subprocess.call(["sh", "-c", main_command]):
            return code
        print(f"beside: waiting for `{beside_command}`, which writes {log}", flush=True)
        code = beside.wait()
        sys.stdout.write(pathlib.Path(log).read_text(errors="replace"))
        if code:
            print(f"beside: `{beside_command}` failed", file=sys.stderr)
        return code
    finally:
        stop(beside)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
