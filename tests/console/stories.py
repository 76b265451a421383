"""People use the console: stories in a real Chromium. Any console error, CSP report or serious finding of axe fails."""

import json
import os
import pathlib
import re
import shutil
import socket
import sys
import traceback
import urllib.error
import urllib.request
from datetime import datetime, timedelta

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

URL = os.environ["CRONBOX_URL"]
ADMIN, EDITOR = os.environ["CRONBOX_ADMIN_KEY"], os.environ["CRONBOX_EDITOR_KEY"]
TEAM = int(os.environ["CRONBOX_TEAM_ID"])
# An app whose people sign in with Canaille, and the key of its admin.
ORGANISATION, ORGANISATION_KEY = os.environ["CRONBOX_ORGANISATION_URL"], os.environ["CRONBOX_ORGANISATION_KEY"]
ORGANISATION_TEAM = int(os.environ["CRONBOX_ORGANISATION_TEAM_ID"])
PICTURES = pathlib.Path(os.environ["CRONBOX_PICTURES"])
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
# Milliseconds; it only ends a story that hangs.
PATIENCE = 300_000
expect.set_options(timeout=PATIENCE)
# Pages without an object of their own.
PAGES = ["/", "/workflows", "/runs", "/backfills", "/upcoming", "/delivery", "/proof", "/admin"]
TABS = ["", "/runs", "/next", "/settings", "/history", "/sync"]


def step(text):
    """Makes the stack do what a browser cannot do; returns its time then."""
    print(f"do {text}", flush=True)
    return datetime.fromisoformat(json.loads(sys.stdin.readline())["now"])


def wait_until(time, fire=False):
    """Lets time pass, with the fires of the schedules or without them."""
    minutes = round((time - step("wait 0")).total_seconds() / 60)
    return step(f"{'wait_and_fire' if fire else 'wait'} {minutes}")


def next_hour():
    return step("wait 0").replace(minute=0, second=0) + timedelta(hours=1)


def next_midnight():
    return step("wait 0").replace(hour=0, minute=0, second=0) + timedelta(days=1)


def api(method, path, body=None, key=EDITOR, url=URL):
    """Sends a request to the API, and returns the JSON of its answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {path}: {error.read().decode()}") from error
    return json.loads(text) if text else None


def create(name, key=EDITOR, **fields):
    """Creates a workflow that writes a line in the log."""
    body = {"name": name, "action": {"type": "log", "message": name}, "cron_schedule": "0 9 * * *", "timezone": "Europe/Paris"}
    return api("POST", "/workflows", body | fields, key)["id"]


def create_hourly(name, key=EDITOR):
    """Creates a workflow that fires at each full hour."""
    workflow = create(name, key, cron_schedule="0 * * * *", timezone="UTC")
    step("publish")
    return workflow


def create_team(name):
    """Creates a team; returns the key of its editor."""
    team = api("POST", "/teams", {"name": name}, ADMIN)["id"]
    return create_key(name, "editor", team)


def create_key(name, role, team=TEAM):
    return api("POST", "/keys", {"kind": "team", "team_id": team, "role": role, "name": name}, ADMIN)["key"]


def decisions(workflow, key=EDITOR):
    """What was decided for the due times of a workflow, the oldest first."""
    items = api("GET", f"/schedules/{workflow}/occurrences?limit=200", key=key)["items"]
    return [(item["scheduled_time"], item["decision"]) for item in reversed(items)]


class Visitor:
    """A browser of one person, which notes every error and confirms every question."""

    def __init__(self, browser, viewport=DESKTOP, key=None, url=URL, **context):
        self.url = url
        self.context = browser.new_context(viewport=viewport, base_url=url, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors = []
        self.expected = []
        self.page.on("console", self.note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: dialog.accept())
        self.page.add_init_script("addEventListener('securitypolicyviolation', (e) => console.error('CSP ' + e.violatedDirective + ' ' + e.blockedURI))")
        if key:
            self.sign_in(key)

    def note(self, message):
        # The pages of the provider are not ours: Canaille's package lacks fonts that they name.
        if message.type == "error" and not message.location["url"].startswith("https://localhost:"):
            self.errors.append(message.text)

    def sign_in(self, key):
        self.page.goto("/sign-in")
        self.page.get_by_label("Key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/")

    def write(self, path):
        """Sends a write, as a page of the console does, also one for which no page has a button; returns its status."""
        headers = {"Sec-Fetch-Site": "same-origin", "HX-Request": "true"}
        return self.post(path, headers, form={"reason": ""}).status

    def post(self, path, headers, **fields):
        """Sends a POST. The app ends a connection that is idle for 10 s, maybe when it is used again: then it is sent again."""
        return self.context.request.post(path, headers=headers, max_retries=3, **fields)

    def notice(self, text):
        expect(self.page.locator("#notice")).to_contain_text(text, timeout=PATIENCE)

    def close(self):
        # A refusal that a story wants is an error of the network in the console of the browser.
        unexpected = [error for error in self.errors if not any(text in error for text in self.expected)]
        self.context.close()
        assert not unexpected, unexpected


def check_page(visitor, path, name, picture=True):
    """Looks at a page as axe and a phone see it, and takes its picture."""
    answer = visitor.page.goto(path)
    assert answer.ok, f"{path} is answered {answer.status}"
    expect(visitor.page.locator("h1")).to_have_count(1)
    width = visitor.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"{path} scrolls sideways by {width} px"
    found = Axe().run(visitor.page).response["violations"]
    serious = [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, f"{path}: {serious}"
    if picture:
        visitor.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def a_preview_shows_gaps_and_folds(browser):
    workflow = create("by night")
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto(f"/workflows/{workflow}/settings")
    cron, preview = page.locator("main [name=cron_schedule]"), page.locator("#explanation")
    time = lambda text: page.get_by_role("row").filter(has_text=text)
    cron.fill("30 2 * * *")
    # On March 29 clocks go forward from 02:00 to 03:00.
    expect(time("2026-03-30 02:30 +02:00")).to_contain_text("the clock goes forward", timeout=PATIENCE)
    expect(preview).to_contain_text("At 02:30, every day")
    expect(time("2026-03-28 02:30 +01:00")).not_to_contain_text("clock")
    expect(preview).not_to_contain_text("2026-03-29 02:30")
    cron.fill("30 2 25 10 *")
    expect(time("2026-10-25 02:30 +02:00")).to_contain_text("the clock goes back", timeout=PATIENCE)
    cron.fill("30 2 * * *")
    page.locator("main [name=timezone]").fill("Asia/Kolkata")
    expect(time("2026-03-29 02:30 +05:30")).not_to_contain_text("clock", timeout=PATIENCE)
    page.locator("main [name=timezone]").fill("Europe/Paris")
    expect(time("2026-03-30 02:30 +02:00")).to_contain_text("the clock goes forward", timeout=PATIENCE)
    page.get_by_role("button", name="Save").first.click()
    visitor.notice("Saved")
    page.goto(f"/workflows/{workflow}/next")
    expect(time("2026-03-30 02:30 +02:00")).to_contain_text("the clock goes forward")
    step("publish")
    visitor.close()


def a_workflow_is_made_edited_and_restored(browser):
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.get_by_role("link", name="Workflows", exact=True).click()
    page.get_by_role("link", name="New workflow").click()
    page.locator("[name=name]").fill("payroll")
    page.locator("[name=cron_schedule]").fill("30 2 * * *")
    page.locator("[name=timezone]").fill("Europe/Paris")
    expect(page.locator("#explanation")).to_contain_text("At 02:30", timeout=PATIENCE)
    page.get_by_label("Writes a line to the log of cronbox").check()
    page.locator("[name='action.message']").fill("pay")
    page.get_by_role("button", name="Create").first.click()
    visitor.notice("The workflow was created")
    workflow = re.search(r"/workflows/(\d+)", page.url)[1]
    step("publish")
    page.goto(f"/workflows/{workflow}")
    expect(page.locator("#live")).to_contain_text("EventBridge has it")

    # Two editors: the second one sees what the first one changed meanwhile.
    other = Visitor(browser, key=EDITOR)
    other.expected.append("412")
    other.page.goto(f"/workflows/{workflow}/settings")
    page.goto(f"/workflows/{workflow}/settings")
    page.locator("[name=cron_schedule]").fill("0 7 * * *")
    page.get_by_role("button", name="Save").first.click()
    visitor.notice("Saved")
    other.page.locator("[name=description]").fill("at night")
    other.page.get_by_role("button", name="Save").first.click()
    other.notice("0 7 * * *")
    assert api("GET", f"/workflows/{workflow}")["description"] is None, "the second edit was not done"
    other.close()

    page.goto(f"/workflows/{workflow}/history")
    newest = page.locator("#live tbody tr").first
    expect(newest).to_contain_text("cron 30 2 * * * → 0 7 * * *")
    page.get_by_role("button", name="Restore").last.click()
    visitor.notice("restored")
    expect(newest).to_contain_text("cron 0 7 * * * → 30 2 * * *")
    assert api("GET", f"/workflows/{workflow}")["cron_schedule"] == "30 2 * * *"
    step("publish")
    page.goto(f"/workflows/{workflow}")
    expect(page.locator("#live")).to_contain_text("EventBridge has it")
    visitor.close()


def all_field_errors_come_at_once(browser):
    visitor = Visitor(browser, key=EDITOR)
    visitor.expected.append("400")
    page = visitor.page
    page.goto("/workflows/new")
    page.locator("[name=name]").fill("wrong")
    page.locator("[name=cron_schedule]").fill("99 * * * *")
    page.locator("[name=timezone]").fill("Europe/Pariss")
    page.get_by_label("Writes a line to the log of cronbox").check()
    page.locator("[name='action.message']").fill("x")
    page.get_by_role("button", name="Create").first.click()
    for field in ["cron_schedule", "timezone"]:
        expect(page.locator(f"main [name={field}]")).to_have_attribute("aria-invalid", "true", timeout=PATIENCE)
    visitor.close()


def a_paused_workflow_is_resumed_run_and_retried(browser):
    workflow = create("nightly")
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto(f"/workflows/{workflow}")
    page.get_by_text("Pause…").click()
    page.get_by_label("Reason").fill("holiday")
    page.get_by_role("button", name="Pause", exact=True).click()
    visitor.notice("Paused")
    expect(page.locator(".banner")).to_contain_text("holiday")
    assert api("GET", f"/workflows/{workflow}")["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    visitor.notice("Resumed")
    page.get_by_role("button", name="Run now").click()
    visitor.notice("started")
    step("runs_end")
    run = api("GET", f"/runs?workflow_id={workflow}")["items"][0]["id"]
    page.goto(f"/runs/{run}")
    expect(page.locator("dl.facts").nth(1)).to_contain_text("The next times")
    page.get_by_role("button", name="Retry").click()
    visitor.notice("new run")
    step("runs_end")
    runs = api("GET", f"/runs?workflow_id={workflow}")["items"]
    assert [(run["trigger"], run["state"]) for run in runs] == [("retry", "succeeded"), ("manual", "succeeded")], runs
    visitor.close()


def a_pause_ends_at_its_time(browser):
    workflow = create_hourly("resting")
    due = next_hour()
    until = due + timedelta(minutes=30)
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto(f"/workflows/{workflow}")
    page.get_by_text("Pause…").click()
    page.get_by_label("Reason").fill("holiday")
    page.get_by_label("Until, in UTC").fill(f"{until:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Pause", exact=True).click()
    visitor.notice("Paused")
    expect(page.locator(".banner")).to_contain_text(f"until {until:%Y-%m-%d %H:%M} UTC: holiday")
    # A change of the reason keeps the end.
    page.get_by_text("Change the pause…").click()
    page.get_by_label("Reason").fill("holidays")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".banner")).to_contain_text(f"until {until:%Y-%m-%d %H:%M} UTC: holidays", timeout=PATIENCE)
    assert api("GET", f"/workflows/{workflow}")["pause_until"] == f"{until:%Y-%m-%dT%H:%M:%SZ}"
    page.goto(f"/workflows/{workflow}/next")
    times = page.locator("#live tbody tr")
    expect(times.nth(0)).to_contain_text("will not run: the workflow is paused")
    expect(times.nth(1)).not_to_contain_text("will not run")
    step("publish")
    wait_until(until + timedelta(minutes=5))
    step("job watchdog")
    assert api("GET", f"/workflows/{workflow}")["state"] == "active"
    page.goto(f"/workflows/{workflow}?day={due:%Y-%m-%d}")
    expect(page.locator("#live")).to_contain_text("● active")
    expect(page.locator("#live")).to_contain_text("No time was due on this day")
    step("publish")
    due = next_hour()
    wait_until(due + timedelta(minutes=10), fire=True)
    assert decisions(workflow) == [(f"{due:%Y-%m-%dT%H:%M:%SZ}", "fired")]
    visitor.close()


def a_freeze_skips_due_times_until_it_is_lifted(browser):
    key = create_team("frozen")
    workflow = create_hourly("in the freeze", key)
    visitor, other = Visitor(browser, key=key), Visitor(browser, key=EDITOR)
    page, banner = visitor.page, visitor.page.locator(".banner")
    page.goto("/admin/freezes")
    page.get_by_label("Reason, for people").fill("Black Friday")
    page.get_by_role("button", name="Freeze", exact=True).click()
    visitor.notice("Frozen")
    page.goto("/workflows")
    expect(banner).to_contain_text("Frozen: Black Friday")
    other.page.goto("/workflows")
    expect(other.page.locator("h1")).to_have_text("Workflows")
    expect(other.page.locator(".banner")).to_have_count(0)
    other.close()

    due = next_hour()
    wait_until(due + timedelta(minutes=10), fire=True)
    assert [decision for _, decision in decisions(workflow, key)] == ["skipped_paused"]
    page.goto(f"/workflows/{workflow}?day={due:%Y-%m-%d}")
    skipped = page.get_by_role("row").filter(has_text=f"{due:%Y-%m-%d %H:%M} UTC")
    expect(skipped).to_contain_text("skipped: paused or frozen")
    expect(skipped).to_contain_text("the schedules were frozen: Black Friday")

    page.goto("/admin/freezes")
    page.get_by_role("button", name="Lift the freeze: Black Friday").click()
    visitor.notice("lifted")
    page.goto("/workflows")
    expect(banner).to_have_count(0)
    wait_until(next_hour() + timedelta(minutes=10), fire=True)
    assert [decision for _, decision in decisions(workflow, key)] == ["skipped_paused", "fired"]

    # What a backfill of the span leaves out is said, with the way to run it.
    page.goto(f"/workflows/{workflow}")
    for field in ("start", "end"):
        page.locator(f"form[data-span] [name={field}]").fill(f"{due:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Count the times…").click()
    preview = page.locator("#backfill-preview")
    expect(preview).to_contain_text("No time is selected", timeout=PATIENCE)
    expect(preview).to_contain_text("1 time of the span was skipped")
    page.get_by_role("button", name="Count by the cron of now…").click()
    expect(preview).to_contain_text("1 time is selected", timeout=PATIENCE)
    page.get_by_role("button", name="Run 1 time").click()
    visitor.notice("The backfill was started")
    step("job backfills")
    step("runs_end")
    step("job backfills")
    assert [decision for _, decision in decisions(workflow, key)] == ["backfilled", "fired"]
    visitor.close()


def a_freeze_asks_for_its_team(browser):
    create_team("stocktaking")
    visitor = Visitor(browser, key=ADMIN)
    page, asked = visitor.page, []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    freezes = lambda: {freeze["reason"]: freeze for freeze in api("GET", "/freezes?limit=200", key=ADMIN)["items"]}
    page.goto("/admin/freezes")
    team = page.locator("main [name=team_id]")
    expect(team).to_have_value("")
    page.get_by_label("Reason, for people").fill("the stock is counted")
    page.get_by_role("button", name="Freeze", exact=True).click()
    expect(page.locator("main [name=team_id]:invalid")).to_have_count(1)
    assert not asked and "the stock is counted" not in freezes(), "no team was chosen"
    team.select_option("stocktaking")
    # Nothing is frozen before the story ends.
    begin = step("wait 0") + timedelta(days=300)
    page.get_by_label("From, in UTC").fill(f"{begin:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Freeze", exact=True).click()
    visitor.notice("The freeze is planned")
    made = freezes()["the stock is counted"]
    assert asked == ["Freeze the schedules of stocktaking? Their due times are skipped, not delayed."], asked
    page.get_by_role("button", name="Lift the freeze: the stock is counted").click()
    visitor.notice("lifted")
    assert made["team_id"] is not None
    visitor.close()


def a_span_of_the_ledger_is_backfilled(browser):
    workflow = create("report", cron_schedule="0 12 * * *", timezone="UTC", catch_up_policy="none")
    wait_until(next_midnight() + timedelta(days=3, hours=1))
    step("job watchdog")
    missed = decisions(workflow)
    assert len(missed) >= 3 and {decision for _, decision in missed} == {"missed"}, missed
    first, *_, last = [time[:10] for time, _ in missed[-3:]]
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto(f"/workflows/{workflow}")
    # The last day first: the order does not matter.
    for day in (last, first):
        page.locator(f"[data-day='{day}']").click(modifiers=["Shift"])
    expect(page.locator("[name=start]")).to_have_value(f"{first}T00:00")
    expect(page.locator("[name=end]")).to_have_value(f"{last}T23:59")
    page.get_by_role("button", name="Count the times…").click()
    expect(page.locator("#backfill-preview")).to_contain_text("3 times are selected", timeout=PATIENCE)
    assert api("GET", f"/runs?workflow_id={workflow}")["items"] == [], "a dry run starts nothing"
    page.get_by_role("button", name="Run 3 times").click()
    visitor.notice("The backfill was started")
    backfill = re.search(r"/backfills/([0-9a-f-]+)", page.url)[1]
    expect(page.locator("h1")).to_contain_text("in progress")
    expect(page.locator("#live")).to_contain_text("0 of 3 times have run")
    step("job backfills")
    step("runs_end")
    # The open page shows the end of each run.
    expect(page.locator("#live")).to_contain_text("3 of 3 times have run: 3 succeeded, none failed", timeout=PATIENCE)
    step("job backfills")
    assert api("GET", f"/backfills/{backfill}")["state"] == "finished"
    page.reload()
    expect(page.locator("h1")).to_contain_text("finished")
    page.goto(f"/workflows/{workflow}")
    expect(page.locator(f"[data-day='{first}']")).to_have_attribute("aria-label", re.compile("1 due time: 1 backfilled"))
    assert [decision for _, decision in decisions(workflow)][-3:] == ["backfilled"] * 3
    visitor.close()


def a_dead_letter_is_redriven(browser):
    workflow = create_hourly("undelivered")
    due = next_hour()
    step("app_is_away")
    wait_until(due + timedelta(minutes=15), fire=True)
    step("app_is_back")
    step("mirror")
    assert decisions(workflow) == [], "the fire is in a dead-letter queue only"
    visitor = Visitor(browser, key=ADMIN)
    page = visitor.page
    page.goto("/delivery/letters")
    letter = page.get_by_role("row").filter(has=page.get_by_role("link", name=f"workflow {workflow}", exact=True))
    expect(letter).to_contain_text("waits in its queue")
    expect(letter).to_contain_text(f"{due:%Y-%m-%d %H:%M} UTC")
    letter.get_by_role("button", name="Redrive message").click()
    visitor.notice("The redrive was requested")
    expect(page.locator("#live")).to_contain_text("redrive requested")
    step("mirror")
    step("runs_end")
    page.reload()
    expect(page.locator("#live")).to_contain_text("the app accepted the fire")
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)
    page.locator("#live").get_by_role("link", name=re.compile(r"^[0-9a-f-]{36}$")).click()
    expect(page.locator("main")).to_contain_text("succeeded")
    assert decisions(workflow) == [(f"{due:%Y-%m-%dT%H:%M:%SZ}", "fired")]
    visitor.close()


def a_day_is_proven_or_says_why_not(browser):
    workflow = create_hourly("proven")
    begin = next_midnight()
    wait_until(begin + timedelta(minutes=15), fire=True)
    step("job watchdog")
    step("job verify")
    visitor = Visitor(browser, key=ADMIN)
    page = visitor.page
    page.goto("/proof")
    day = lambda time, words: page.get_by_role("link", name=re.compile(f"{time:%Y-%m-%d}: {words}"))
    yesterday = begin - timedelta(days=1)
    expect(day(yesterday, r"no difference, \d+ due times compared").locator("rect")).to_have_class("good")

    noon = begin + timedelta(hours=12)
    wait_until(begin + timedelta(days=1, minutes=15), fire=True)
    step("job watchdog")
    step(f"lose_decision {workflow} {noon.isoformat()}")
    step("job verify")
    # The session has ended with the day.
    visitor.sign_in(ADMIN)
    page.goto("/proof")
    expect(page.locator("main")).to_contain_text("1 of the last 35 days differs")
    differs = day(begin, r"\d+ differences?, \d+ due times compared")
    expect(differs.locator("rect")).to_have_class("bad")
    differs.click()
    why = page.get_by_role("row").filter(has=page.get_by_role("link", name=f"workflow {workflow}", exact=True))
    expect(why.first).to_contain_text(f"{noon:%Y-%m-%d %H:%M} UTC")
    expect(why.first).to_contain_text("the time was due, and no decision is recorded")
    page.get_by_label("From (UTC)").fill(f"{noon:%Y-%m-%dT%H:%M}".replace("12:00", "13:00"))
    page.get_by_role("button", name="Verify now").click()
    expect(page.locator("main")).to_contain_text("The span has no difference", timeout=PATIENCE)
    visitor.close()


def many_are_paused_at_once(browser):
    for nth in range(200):
        create(f"batch {nth:03}", labels={"set": "batch"})
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto("/workflows?label=set%3Abatch")
    page.get_by_label("all 200 that match").check()
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Start: pause 200 workflows").click()
    visitor.notice("operation was started")
    for _ in range(20):
        step("job bulk")
        if api("GET", "/workflows?label=set:batch&state=paused&total=true")["total"] == 200:
            break
    paused = api("GET", "/workflows?label=set:batch&state=paused&total=true")["total"]
    assert paused == 200, (paused, page.url, api("GET", "/bulk"))
    visitor.close()


def a_viewer_has_no_buttons(browser):
    workflow = create("seen")
    api("POST", f"/schedules/{workflow}:fire", {})
    step("runs_end")
    run = api("GET", f"/runs?workflow_id={workflow}")["items"][0]["id"]
    visitor = Visitor(browser, key=create_key("viewer", "viewer"))
    tabs = [f"/workflows/{workflow}{tab}" for tab in TABS]
    for path in [*PAGES, *tabs, f"/runs/{run}", "/workflows/new", "/delivery/letters", "/proof/times", "/admin/freezes", "/admin/notifications"]:
        visitor.page.goto(path)
        expect(visitor.page.locator("h1")).to_have_count(1)
        buttons = visitor.page.locator("main button:enabled").all_text_contents()
        assert all(text.strip() in ("Filter", "Show", "Copy as curl", "") for text in buttons), (path, buttons)
    for path in [f"/workflows/{workflow}/pause", f"/workflows/{workflow}/fire", f"/workflows/{workflow}/archive", f"/runs/{run}/retry"]:
        assert visitor.write(path) == 403, path
    assert api("GET", f"/workflows/{workflow}")["state"] == "active"
    visitor.close()


def pages_of_another_team_do_not_exist(browser):
    key = create_team("others")
    workflow = create("theirs", key)
    api("POST", f"/schedules/{workflow}:fire", {}, key)
    step("runs_end")
    run = api("GET", f"/runs?workflow_id={workflow}", key=key)["items"][0]["id"]
    visitor = Visitor(browser, key=EDITOR)
    visitor.expected.append("404")
    for path in [*(f"/workflows/{workflow}{tab}" for tab in TABS), f"/runs/{run}", "/workflows/0", "/workflows/x", "/runs/x", "/backfills/x", "/delivery/letters/x", "/admin/teams/x"]:
        assert visitor.page.goto(path).status == 404, path
        expect(visitor.page.locator("h1")).to_have_text("Not found")
    for path in [f"/workflows/{workflow}/pause", f"/workflows/{workflow}/archive", f"/runs/{run}/retry"]:
        assert visitor.write(path) == 404, path
    for path in ["/workflows", f"/runs?workflow_id={workflow}"]:
        visitor.page.goto(path)
        expect(visitor.page.locator("h1")).to_have_count(1)
        expect(visitor.page.get_by_role("link", name="theirs", exact=True)).to_have_count(0)
    assert api("GET", f"/workflows/{workflow}", key=key)["state"] == "active"
    visitor.close()


def a_revoked_key_is_out(browser):
    made = api("POST", "/keys", {"kind": "team", "team_id": TEAM, "role": "viewer", "name": "leaver"}, ADMIN)
    visitor = Visitor(browser, key=made["key"])
    visitor.page.goto("/workflows")
    expect(visitor.page.locator("h1")).to_have_text("Workflows")
    api("POST", f"/keys/{made['id']}:revoke", {}, ADMIN)
    visitor.expected.append("401")
    visitor.page.goto("/workflows")
    visitor.page.wait_for_url("**/sign-in*")
    visitor.close()


def an_act_is_in_the_audit_log(browser):
    workflow = create("audited")
    visitor = Visitor(browser, key=EDITOR)
    assert visitor.write(f"/workflows/{workflow}/pause") == 200
    visitor.close()
    visitor = Visitor(browser, key=ADMIN)
    visitor.page.goto(f"/admin/audit?subject=workflow:{workflow}")
    pause = visitor.page.get_by_role("row").filter(has_text=f"pause workflow:{workflow}")
    expect(pause).to_contain_text("key:cbt_")
    expect(pause).to_contain_text("from 127.0.0.1")
    visitor.page.goto("/admin/audit?verb=sign-in")
    expect(visitor.page.locator("tbody tr").nth(1)).to_contain_text("key:cbt_")
    visitor.close()


def another_site_cannot_write(browser):
    workflow = create("guarded")
    visitor = Visitor(browser, key=EDITOR)
    visitor.expected.append("403")
    answer = visitor.post(f"/workflows/{workflow}/archive", {"Sec-Fetch-Site": "cross-site", "HX-Request": "true"})
    assert answer.status == 403, answer.status
    answer = visitor.post(f"/workflows/{workflow}/archive", {"Sec-Fetch-Site": "same-origin"})
    assert answer.status == 403, answer.status
    assert api("GET", f"/workflows/{workflow}")["state"] == "active"
    visitor.close()


def tab_to(page, text):
    """Moves the focus by the keyboard, as far as to the element with this text."""
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"the keyboard does not reach {text}")


def the_keyboard_suffices(browser):
    workflow = create("by keyboard")
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/workflows?q=*")
    tab_to(page, "by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("by keyboard")
    tab_to(page, "Pause…")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("holiday")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    visitor.notice("Paused")
    assert api("GET", f"/workflows/{workflow}")["pause_reason"] == "holiday"
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    visitor.close()


def pages_are_read_without_scripts(browser):
    visitor = Visitor(browser, java_script_enabled=False)
    visitor.sign_in(ADMIN)
    for path in PAGES:
        visitor.page.goto(path)
        expect(visitor.page.locator("h1")).to_have_count(1)
    visitor.close()


def refused_action():
    """An action that fails at once: nothing listens on its port, which is below those that a program gets by chance."""

    def is_free(port):
        with socket.socket() as server:
            return server.connect_ex(("127.0.0.1", port)) != 0

    port = next(filter(is_free, range(12_000, 13_000)))
    return {"type": "http", "method": "GET", "url": f"http://127.0.0.1:{port}/"}


def operations():
    """The ids of the bulk operations."""
    return {operation["id"] for operation in api("GET", "/bulk?limit=200")["items"]}


def a_double_click_writes_once(browser):
    workflow = create("clicked twice", action=refused_action(), max_attempts=1, overlap_policy="concurrent")
    visitor = Visitor(browser, key=EDITOR)
    page, before = visitor.page, operations()
    page.goto(f"/workflows/bulk?verb=fire&id={workflow}@{TEAM}")
    page.get_by_role("button", name="Start: run now 1 workflow").dblclick()
    visitor.notice("operation was started")
    # Those of the stories before come first.
    for _ in range(100):
        step("job bulk")
        if all(api("GET", f"/bulk/{operation}")["finished_on"] for operation in operations() - before):
            break
    step("runs_end")
    runs = api("GET", f"/runs?workflow_id={workflow}")["items"]
    assert (len(operations() - before), [run["state"] for run in runs]) == (1, ["failed"]), runs
    page.goto(f"/runs/bulk?verb=retry&id={runs[0]['id']}")
    page.get_by_role("button", name="Retry 1 run").dblclick()
    visitor.notice("operation was started")
    assert len(operations() - before) == 2
    visitor.close()

    visitor = Visitor(browser, key=ADMIN)
    # If the first answer has come before the second click.
    visitor.expected.append("422")
    page = visitor.page
    page.goto("/admin/keys")
    page.locator("summary", has_text="New key").click()
    page.get_by_label("What it is for").fill("clicked twice")
    page.get_by_label("It gives access to").select_option("admin")
    page.get_by_role("button", name="Create the key").dblclick()
    expect(page.locator("#once")).to_contain_text("The key clicked twice was created", timeout=PATIENCE)
    keys = api("GET", "/keys?limit=200", key=ADMIN)["items"]
    assert len([key for key in keys if key["name"] == "clicked twice"]) == 1, keys
    visitor.close()


def what_failed_last_is_found(browser):
    failing = create("failing", action=refused_action(), max_attempts=1, labels={"set": "results"})
    fine = create("fine", labels={"set": "results"})
    for workflow in (failing, fine):
        api("POST", f"/schedules/{workflow}:fire", {})
    step("runs_end")
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto("/workflows?label=set%3Aresults")
    page.get_by_label("Last result").select_option("not succeeded")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("link", name="failing", exact=True)).to_have_count(1)
    expect(page.get_by_role("link", name="fine", exact=True)).to_have_count(0)
    # The same filter selects for an operation on all that match.
    page.get_by_label("Select all rows of this page").check()
    page.get_by_role("button", name="Pause…").click()
    expect(page.locator("main")).to_contain_text("failing", timeout=PATIENCE)
    page.get_by_role("button", name="Start: pause 1 workflow").click()
    visitor.notice("operation was started")
    visitor.close()


def a_channel_and_its_rule_are_changed(browser):
    body = {"name": "on call", "kind": "email", "recipients": ["ops@example.com"], "default_rules": False}
    channel = api("POST", "/notification-channels", body)["id"]
    rule = api("POST", "/notification-rules", {"event": "failures_in_a_row", "threshold": 3, "channel_ids": [channel]})["id"]
    visitor = Visitor(browser, key=EDITOR)
    page = visitor.page
    page.goto("/admin/notifications/channels")
    page.get_by_label("Change on call").click()
    page.get_by_label("Addresses, one a line, at most 20").fill("ops@example.com\nnight@example.com")
    page.get_by_label("Messages in an hour at most").fill("7")
    page.get_by_role("button", name="Save").click()
    visitor.notice("The channel was saved")
    changed = api("GET", f"/notification-channels/{channel}")
    assert (changed["recipients"], changed["max_per_hour"]) == (["ops@example.com", "night@example.com"], 7), changed
    page.goto("/admin/notifications/rules")
    page.get_by_label(f"Change rule {rule}").click()
    page.get_by_label("How often in a row, if the event says so").fill("5")
    page.get_by_role("button", name="Save").click()
    visitor.notice("The rule was saved")
    changed = api("GET", f"/notification-rules/{rule}")
    assert (changed["threshold"], changed["channel_ids"], changed["event"]) == (5, [channel], "failures_in_a_row"), changed
    for path in [f"/admin/notifications/channels/{channel}", f"/admin/notifications/rules/{rule}"]:
        check_page(visitor, path, "form", picture=False)
    visitor.close()


def a_key_is_rotated_by_its_owner(browser):
    visitor = Visitor(browser, key=create_key("rotated", "editor"))
    # A key is rotated a minute after its creation at the earliest.
    wait_until(next_hour())
    visitor.page.goto("/admin/me")
    visitor.page.get_by_role("button", name="Rotate the key").click()
    expect(visitor.page.locator("#once")).to_contain_text("This is your new key", timeout=PATIENCE)
    key = visitor.page.locator("#once-1").inner_text()
    assert api("GET", "/me", key=key)["scopes"], "the new key has the rights of the old one"
    visitor.close()


def an_open_page_shows_the_end_of_a_run(browser):
    workflow = create("watched")
    visitor = Visitor(browser, key=EDITOR)
    visitor.page.goto(f"/runs?workflow_id={workflow}")
    api("POST", f"/schedules/{workflow}:fire", {})
    step("runs_end")
    expect(visitor.page.locator("#live")).to_contain_text("succeeded", timeout=PATIENCE)
    visitor.close()


def an_outage_takes_nothing_from_a_page(browser):
    workflow = create("watched in an outage")
    visitor = Visitor(browser, key=EDITOR)
    visitor.expected += ["502", "503"]
    page, stale, part = visitor.page, visitor.page.locator("#stale"), visitor.page.locator("#live")
    list_of_runs = re.compile(rf"/runs\?workflow_id={workflow}$")
    page.goto(f"/runs?workflow_id={workflow}")
    page.route(list_of_runs, lambda route: route.fulfill(status=503, content_type="application/problem+json", body="{}"))
    api("POST", f"/schedules/{workflow}:fire", {})
    expect(stale).to_contain_text("cronbox answered 503", timeout=PATIENCE)
    expect(part).to_contain_text("No run matches")
    page.unroute(list_of_runs)
    step("runs_end")
    expect(part).to_contain_text("succeeded", timeout=PATIENCE)
    expect(stale).to_be_hidden()

    # A proxy answers for cronbox: what was typed is still there, and is saved then.
    page.goto(f"/workflows/{workflow}/settings")
    description = page.locator("main [name=description]")
    description.fill("typed for ten minutes")
    settings = re.compile(rf"/workflows/{workflow}/settings$")
    page.route(settings, lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad gateway</h1>"))
    page.get_by_role("button", name="Save").first.click()
    visitor.notice("cronbox answered 502")
    expect(description).to_have_value("typed for ten minutes")
    page.unroute(settings)

    # The edit is made, and only the next page does not come.
    next_page = re.compile(rf"/workflows/{workflow}/settings\?done=saved$")
    page.route(next_page, lambda route: route.fulfill(status=503, content_type="text/html", body="<h1>Not now</h1>"))
    page.get_by_role("button", name="Save").first.click()
    visitor.notice("The request was accepted, but the next page did not come")
    expect(description).to_have_value("typed for ten minutes")
    assert api("GET", f"/workflows/{workflow}")["description"] == "typed for ten minutes"
    visitor.close()


def a_lost_answer_writes_nothing_twice(browser):
    workflow = create("answer lost")
    visitor = Visitor(browser, key=EDITOR)
    visitor.expected += ["ERR_FAILED", "htmx:error"]
    page, before = visitor.page, operations()

    def lose_answer(route):
        # A browser adds this header behind the interception.
        route.fetch(headers={**route.request.headers, "sec-fetch-site": "same-origin"}, max_retries=3)
        route.abort()

    page.goto(f"/workflows/bulk?verb=fire&id={workflow}@{TEAM}")
    start = re.compile("/workflows/bulk/start$")
    page.route(start, lose_answer)
    page.get_by_role("button", name="Start: run now 1 workflow").click()
    visitor.notice("cronbox cannot be reached")
    assert len(operations() - before) == 1, "the request came to cronbox"
    page.unroute(start)
    page.get_by_role("button", name="Start: run now 1 workflow").click()
    visitor.notice("operation was started")
    assert len(operations() - before) == 1
    visitor.close()


def every_page_is_usable(browser):
    workflow = create("shown")
    api("POST", f"/schedules/{workflow}:fire", {})
    step("runs_end")
    run = api("GET", f"/runs?workflow_id={workflow}")["items"][0]["id"]
    admin = ["/admin/teams", "/admin/keys", "/admin/sessions", "/admin/freezes", "/admin/notifications", "/admin/notifications/channels", "/admin/notifications/rules", "/admin/audit", "/admin/me"]
    paths = PAGES + [f"/workflows/{workflow}{tab}" for tab in TABS] + [f"/runs/{run}", "/workflows/new", "/proof/times"] + admin
    body = {"name": "shown", "kind": "email", "recipients": ["ops@example.com"], "default_rules": True}
    channel = api("POST", "/notification-channels", body)["id"]
    rule = api("GET", "/notification-rules")["items"][0]["id"]
    forms = [f"/admin/notifications/channels/new?kind={kind}" for kind in ("webhook", "slack", "email", "aws")]
    forms += [f"/admin/notifications/channels/{channel}", f"/admin/notifications/rules/{rule}", f"/admin/teams/{TEAM}"]
    forms += [f"/workflows/bulk?verb=pause&id={workflow}@{TEAM}", f"/runs/bulk?verb=retry&id={run}"]
    paths += [*forms, "/admin/notifications/messages", "/delivery/letters"]
    for viewport, scheme in [(DESKTOP, "light"), (PHONE, "dark")]:
        visitor = Visitor(browser, viewport=viewport, key=ADMIN, color_scheme=scheme)
        for path in paths:
            name = path
            for id, noun in ((run, "run"), (workflow, "workflow"), (channel, "channel"), (rule, "rule"), (TEAM, "team")):
                name = re.sub(rf"\b{id}\b", noun, name)
            name = re.sub("[^a-z]+", "-", name).strip("-") or "overview"
            check_page(visitor, path, f"{name}-{'phone' if viewport == PHONE else 'desktop'}-{scheme}")
        visitor.close()


def a_person_signs_out(browser):
    visitor = Visitor(browser, key=EDITOR)
    sign_out(visitor)
    visitor.page.goto("/workflows")
    visitor.page.wait_for_url("**/sign-in*")
    visitor.close()


def sign_out(visitor):
    visitor.page.locator(".who summary").click()
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.page.wait_for_url("**/sign-in")


def sign_in_at_canaille(page, name):
    """Chooses the provider, and fills its own forms."""
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.wait_for_url(re.compile("^https://localhost:"))
    page.locator("[name=login]").fill(name)
    page.locator("[name=login]").press("Enter")
    page.locator("[name=password]").fill("correct horse battery staple")
    page.locator("[name=password]").press("Enter")


def a_person_signs_in_with_the_organisation(browser):
    body = {"name": "payroll", "action": {"type": "log", "message": "pay"}, "team_id": ORGANISATION_TEAM}
    workflow = api("POST", "/workflows", body, ORGANISATION_KEY, ORGANISATION)["id"]
    # Canaille has signed its certificate itself.
    visitor = Visitor(browser, url=ORGANISATION, ignore_https_errors=True)
    page = visitor.page
    page.goto(f"/workflows/{workflow}")
    sign_in_at_canaille(page, "ann")
    page.get_by_role("button", name="Accept").click()
    page.wait_for_url(f"{ORGANISATION}/workflows/{workflow}")
    expect(page.locator(".who summary")).to_have_text("ann@example.com")
    page.get_by_role("button", name="Run now").click()
    visitor.notice("started")
    sign_out(visitor)
    entries = api("GET", "/audit?limit=200", key=ORGANISATION_KEY, url=ORGANISATION)["items"]
    verbs = [entry["verb"] for entry in entries if entry["actor"].startswith("person:ann@example.com (https://localhost:")]
    assert sorted(verbs) == ["fire", "sign-in", "sign-out"], verbs
    visitor.close()

    stranger = Visitor(browser, url=ORGANISATION, ignore_https_errors=True)
    stranger.expected.append("403")
    stranger.page.goto("/sign-in")
    # Canaille in memory takes the consent of one person for that of all.
    sign_in_at_canaille(stranger.page, "eve")
    expect(stranger.page.get_by_role("alert")).to_contain_text("none of your groups has a role in cronbox")
    stranger.page.goto("/workflows")
    stranger.page.wait_for_url("**/sign-in*")
    stranger.close()


STORIES = [
    # It needs the day on which the stack begins.
    a_preview_shows_gaps_and_folds,
    a_workflow_is_made_edited_and_restored,
    all_field_errors_come_at_once,
    a_paused_workflow_is_resumed_run_and_retried,
    many_are_paused_at_once,
    a_viewer_has_no_buttons,
    pages_of_another_team_do_not_exist,
    a_revoked_key_is_out,
    an_act_is_in_the_audit_log,
    another_site_cannot_write,
    the_keyboard_suffices,
    pages_are_read_without_scripts,
    what_failed_last_is_found,
    a_double_click_writes_once,
    a_freeze_asks_for_its_team,
    a_channel_and_its_rule_are_changed,
    an_open_page_shows_the_end_of_a_run,
    an_outage_takes_nothing_from_a_page,
    a_lost_answer_writes_nothing_twice,
    every_page_is_usable,
    a_person_signs_in_with_the_organisation,
    a_person_signs_out,
    # In these, hours and days pass.
    a_key_is_rotated_by_its_owner,
    a_pause_ends_at_its_time,
    a_freeze_skips_due_times_until_it_is_lifted,
    a_dead_letter_is_redriven,
    a_span_of_the_ledger_is_backfilled,
    a_day_is_proven_or_says_why_not,
]


def main():
    chromium = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
    assert chromium, "no Chromium: run `make console`"
    PICTURES.mkdir(parents=True, exist_ok=True)
    wanted = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else None
    failed = []
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root; it visits only the stack of this test.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for story in STORIES:
            if wanted and story.__name__ not in wanted:
                continue
            try:
                story(browser)
                print(f"story {story.__name__} ... ok", flush=True)
            except Exception:
                failed.append(story.__name__)
                print(f"story {story.__name__} ... FAILED", flush=True)
                print(traceback.format_exc()[-3000:], flush=True)
        browser.close()
    print(f"{len(failed)} stories failed: {', '.join(failed)}" if failed else "all stories passed", flush=True)
    sys.exit(1 if failed else 0)


main()
