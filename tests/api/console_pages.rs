//! Pages of the console: over more rows than the API passes over for one page of a list, and for two people at once.

use schedule::WorkflowId;
use serde_json::json;
use tests::{Story, Visitor, refused_action};

use crate::tenant_isolation::{another_team, begin_holder};

/// 5,001 workflows of a team, of which EventBridge has refused the last one: a list reads 5,000 at most for one page.
const MANY_WORKFLOWS: &str = "
    WITH made AS (
        INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on)
        SELECT (SELECT min(id) FROM teams), 'workflow ' || nth, '{\"type\":\"log\",\"message\":\"m\"}', '0 9 * * *', 1,
               cronbox_now(), cronbox_now()
          FROM generate_series(1, 5001) AS nth
         ORDER BY nth
        RETURNING id
    )
    INSERT INTO publications (workflow_id, desired_revision, error_class, last_error)
    SELECT id, 1, CASE WHEN id = max(id) OVER () THEN 'permanent' END, 'ValidationException' FROM made";

/// 1,300 minutes of five workflows that were skipped, but for the oldest one, which was missed.
const MANY_DECISIONS: &str = "
    INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), w.id, cronbox_now() - make_interval(mins => nth),
           CASE WHEN nth = 1300 AND w.id = (SELECT min(id) FROM workflows) THEN 'missed' ELSE 'skipped_paused' END, 1,
           cronbox_now(), cronbox_now(), cronbox_now()
      FROM workflows w, generate_series(1, 1300) AS nth";

/// With that of the story 201 teams, of which a list names 200.
const MANY_TEAMS: &str = "
    INSERT INTO teams (name, signing_secret, created_on)
    SELECT 'team number ' || nth, 'whsec_', cronbox_now() FROM generate_series(2, 201) AS nth ORDER BY nth";

/// Documents of 125 arrays and objects inside of each other, which an earlier version accepted.
const DEEP_DOCUMENTS: &str = "
    UPDATE workflows
       SET starting_inputs = jsonb_build_object('a', (repeat('[', 124) || repeat(']', 124))::jsonb),
           action = jsonb_build_object('type', 'http', 'method', 'POST', 'url', 'https://a.example',
                                       'body', (repeat('[', 125) || repeat(']', 125))::jsonb)";

/// The fields of a new workflow.
const NEW_WORKFLOW: &str = "name=new&overlap_policy=skip&max_concurrent=10&catch_up_policy=skip&catch_up_window_secs=86400\
    &spread_secs=0&timeout_secs=300&max_attempts=1&on_lost=retry&action.type=log&action.message=m";

#[tokio::test]
async fn the_overview_counts_beyond_one_scan() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(MANY_WORKFLOWS).await;
    for key in [&s.keys.admin, &s.keys.editor] {
        let overview = Visitor::sign_in(s.url(), key).await.read_page("/").await;
        assert!(overview.contains("<b>1</b>workflow that EventBridge refused"), "{overview}");
    }
    s.end_early().await;
}

/// A list and the audit log nest a document deeper than a request may.
#[tokio::test]
async fn deep_documents_leave_pages_readable() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let id = s.create_with(json!({"name": "nested far", "cron_schedule": "0 9 * * *"})).await;
    s.execute(DEEP_DOCUMENTS).await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let page = format!("/workflows/{id}");
    for path in ["/workflows", &page] {
        let shown = visitor.read_page(path).await;
        assert!(shown.contains("nested far"), "{path}: {shown}");
    }
    // The entry has the inputs as they were.
    let flat = json!({"starting_inputs": {}, "action": {"type": "log", "message": "flat"}});
    s.editor().patch(&format!("/api/v1{page}"), &flat).await.expect(200);
    let log = visitor.read_page("/admin/audit").await;
    assert!(log.contains(&format!(">workflow:{id}<")), "{log}");
    s.end_early().await;
}

/// A list of the lost times reads 5,000 decisions for one page, and the lost one is older than these.
#[tokio::test]
async fn the_overview_counts_lost_times_beyond_one_scan() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    for nth in 1..=5 {
        s.create_with(json!({"name": format!("workflow {nth}"), "cron_schedule": "0 9 * * *"})).await;
    }
    s.execute(MANY_DECISIONS).await;
    let overview = Visitor::sign_in(s.url(), &s.keys.editor).await.read_page("/").await;
    assert!(overview.contains("<b>1</b>due time missed or abandoned"), "{overview}");
    s.end_early().await;
}

/// What the database has no time to count is unknown, and the rest of the page is shown beside it.
#[tokio::test]
async fn the_overview_shows_what_cannot_be_counted() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let mut holder = begin_holder(&s).await;
    sqlx::raw_sql("LOCK TABLE failure_streaks").execute(&mut *holder).await.unwrap();
    let overview = visitor.read_page("/").await;
    assert!(overview.contains("?</b>workflows whose last run failed"), "{overview}");
    assert!(overview.contains("The next 24 hours"), "{overview}");
    drop(holder);
    s.end_early().await;
}

/// A tile has the number of the workflows that its list has, whatever else the team has.
#[tokio::test]
async fn the_overview_counts_failing_workflows() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let nowhere = refused_action();
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let mut failing = Vec::new();
    for (nth, tile) in
        ["<b>1</b>workflow whose last run failed", "<b>2</b>workflows whose last run failed"].into_iter().enumerate()
    {
        let fields = json!({"name": format!("fails {nth}"), "action": nowhere, "max_attempts": 1, "overlap_policy": "concurrent"});
        failing.push(s.create_with(fields).await);
        for _ in 0..3 {
            s.editor().post(&format!("/api/v1/schedules/{}:fire", failing[nth]), &json!({})).await.expect(202);
            s.runs_end().await;
        }
        let overview = visitor.read_page("/").await;
        assert!(overview.contains(tile), "{overview}");
    }
    let list = visitor.read_page("/workflows?failures_in_a_row=1").await;
    assert!(list.contains("fails 0") && list.contains("3 failed in a row"), "{list}");
    for workflow in failing {
        let mended = json!({"action": {"type": "log", "message": "mended"}});
        s.editor().patch(&format!("/api/v1/workflows/{workflow}"), &mended).await.expect(200);
        s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
        s.runs_end().await;
    }
    assert!(!visitor.read_page("/").await.contains("whose last run failed"));
    s.end_early().await;
}

/// The publisher does not run, so that the edit waits.
#[tokio::test]
async fn the_overview_shows_edits_that_wait() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.create_with(json!({"cron_schedule": "0 9 * * *"})).await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let waits = "<b>1</b>edit that waits for EventBridge for more than 5 minutes";
    assert!(!visitor.read_page("/").await.contains(waits), "it has just been made");
    s.execute("UPDATE outbox_events SET created_on = created_on - INTERVAL '301 seconds'").await;
    let overview = visitor.read_page("/").await;
    assert!(overview.contains(waits), "{overview}");
    s.end_early().await;
}

/// The answer to the first press was lost, and the page says that another one creates nothing again.
#[tokio::test]
async fn a_second_press_rotates_no_secret_again() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let page = format!("/admin/teams/{}", s.keys.team_id);
    let form = visitor.read_form(&page, &format!("{page}/signing-secret")).await;
    visitor.send_page_form(&form, "overlap_hours=24&by_receiver=").await.expect(200);
    let signing = "SELECT concat_ws(' ', signing_secret, previous_signing_secret) FROM teams";
    let rotated = s.table(signing).await;
    let again = visitor.send_page_form(&form, "overlap_hours=24&by_receiver=").await.expect(422);
    assert!(again.text.contains("the signing secret was rotated then"), "{}", again.text);
    assert_eq!(s.table(signing).await, rotated);
    s.end_early().await;
}

/// One minute was skipped, and 5,001 later ones were missed: the list of what was skipped passes over 5,000 decisions.
const MISSED_SINCE_A_FREEZE: &str = "
    INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), w.id, cronbox_now() - make_interval(mins => nth),
           CASE WHEN nth = 5002 THEN 'skipped_paused' ELSE 'missed' END, 1, cronbox_now(), cronbox_now(), cronbox_now()
      FROM workflows w, generate_series(1, 5002) AS nth";

/// The visitor would believe that the backfill repairs the span.
#[tokio::test]
async fn a_preview_hides_no_skipped_times() {
    let s = Story::at("2026-03-06T08:30:00Z").await;
    let workflow = s.create_with(json!({"cron_schedule": "* * * * *", "timezone": "UTC"})).await;
    s.execute(MISSED_SINCE_A_FREEZE).await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let span = "start=2026-03-01T00:00&end=2026-03-06T08:29&only=missing&timing=then";
    let preview = visitor.send_form(&format!("/workflows/{workflow}/backfill/preview"), span).await.expect(200);
    assert!(preview.text.contains("Times of the span may have been skipped"), "{}", preview.text);
    s.end_early().await;
}

#[tokio::test]
async fn an_empty_part_leads_to_the_next() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(MANY_WORKFLOWS).await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let first = visitor.read_page("/workflows?sync=failed").await;
    assert!(!first.contains("No workflow matches"), "{first}");
    let (_, rest) = first.split_once(r#"<p class="empty">"#).unwrap();
    let next = rest.split_once("href=\"").and_then(|(_, href)| href.split_once('"')).unwrap().0;
    let last = visitor.read_page(&next.replace("&#38;", "&")).await;
    assert!(last.contains("workflow 5001"), "{next}: {last}");
    s.end_early().await;
}

/// Two people have the same form. The second one to save it learns that another edit came first.
#[tokio::test]
async fn a_form_of_an_older_version_is_not_saved() {
    let s = Story::today().await;
    let channel = json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sns:eu-west-1:123456789012:alerts"});
    let id = s.editor().post("/api/v1/notification-channels", &channel).await.expect(201).id();
    let rule = json!({"event": "missed", "channel_ids": [id]});
    let rule = s.editor().post("/api/v1/notification-rules", &rule).await.expect(201).id();
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    for (page, fields) in [
        (format!("/admin/notifications/rules/{rule}"), format!("event=missed&group_secs=30&channel_ids={id}")),
        (
            format!("/admin/notifications/channels/{id}"),
            "name=n&max_per_hour=5&target_arn=arn:aws:sns:eu-west-1:123456789012:alerts".to_owned(),
        ),
    ] {
        assert!(visitor.read_page(&page).await.contains(r#"name="version" value="1""#), "{page}");
        let seen = format!("version=1&{fields}");
        visitor.send_form(&page, &seen).await.expect(200);
        let refusal = visitor.send_form(&page, &seen).await.expect(412).text;
        assert!(refusal.contains("another edit came first"), "{refusal}");
        assert!(visitor.read_page(&page).await.contains(r#"name="version" value="2""#), "{page}");
    }
    s.end().await;
}

/// The visitor has pressed twice, or got no answer and presses again.
#[tokio::test]
async fn forms_sent_again_create_nothing() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let bulk = visitor.read_form(&format!("/workflows/bulk?verb=fire&id={wf}"), "/workflows/bulk/start").await;
    let fire = visitor.read_form(&format!("/workflows/{wf}"), &format!("/workflows/{wf}/fire")).await;
    for form in [&bulk, &fire] {
        let first = visitor.send_page_form(form, "").await.expect(200);
        let again = visitor.send_page_form(form, "").await.expect(200);
        assert_eq!(first.headers["hx-location"], again.headers["hx-location"]);
    }
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1, "the job bulk has no turn here");
    // The same page, loaded again, is another request.
    let fire = visitor.read_form(&format!("/workflows/{wf}"), &format!("/workflows/{wf}/fire")).await;
    s.runs_end().await;
    visitor.send_page_form(&fire, "").await.expect(200);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 2);
    s.end_early().await;
}

/// After a refusal of one of several teams the form is sent again, and those of the others have begun.
#[tokio::test]
async fn each_team_gets_one_operation() {
    let s = Story::today().await;
    let own = s.create("0 9 * * *", "UTC").await;
    let body = json!({"name": "theirs", "action": {"type": "log", "message": "m"}});
    let theirs = another_team(&s, "strangers").await.post("/api/v1/workflows", &body).await.expect(201).id();
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let preview = format!("/workflows/bulk?verb=fire&id={own}&id={theirs}");
    let form = visitor.read_form(&preview, "/workflows/bulk/start").await;
    for _ in 0..2 {
        visitor.send_page_form(&form, "").await.expect(200);
    }
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 2);
    assert_eq!(s.count("SELECT count(DISTINCT team_id) FROM bulk_operations").await, 2);
    s.end_early().await;
}

/// Only the first answer has the key. A second one must not take its place, for example after a double click.
#[tokio::test]
async fn a_key_is_created_and_shown_once() {
    let s = Story::today().await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let form = visitor.read_form("/admin/keys", "/admin/keys").await;
    let shown = visitor.send_page_form(&form, "name=only&kind=admin").await.expect(200).text;
    assert!(shown.contains("The key only was created"), "{shown}");
    for fields in ["name=only&kind=admin", "name=another&kind=admin"] {
        let again = visitor.send_page_form(&form, fields).await.expect(422);
        assert_eq!(again.headers["hx-retarget"], "#notice");
        assert!(again.text.contains("this form was sent before"), "{}", again.text);
    }
    assert_eq!(s.count("SELECT count(*) FROM api_keys WHERE name IN ('only', 'another')").await, 1);
    s.end().await;
}

#[tokio::test]
async fn the_last_team_can_be_chosen() {
    let s = Story::today().await;
    s.execute(MANY_TEAMS).await;
    let last = s.count("SELECT max(id) FROM teams").await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    for page in ["/", "/workflows", "/workflows/new", "/runs", "/backfills", "/upcoming", "/proof/times"] {
        let html = visitor.read_page(page).await;
        assert!(html.contains(r#"<input name="team_id""#), "{page}: {html}");
        assert!(!html.contains(r#"<select name="team_id""#), "{page}: {html}");
    }
    let form = visitor.read_form("/workflows/new", "/workflows/new").await;
    visitor.send_page_form(&form, &format!("{NEW_WORKFLOW}&team_id={last}")).await.expect(200);
    let made = s.count("SELECT count(*) FROM workflows WHERE team_id = (SELECT max(id) FROM teams)").await;
    assert_eq!(made, 1);
    // A visitor who presses "Rename" there must not give it another name.
    let page = visitor.read_page(&format!("/admin/teams/{last}")).await;
    assert!(page.contains(r#"<input name="name" value="team number 201""#), "{page}");
    s.end_early().await;
}

/// Two admins have the same page of a team. The second one to save learns that another edit came first.
#[tokio::test]
async fn older_limits_and_hosts_are_not_saved() {
    let s = Story::today().await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.admin).await;
    let page = format!("/admin/teams/{}", s.keys.team_id);
    for (part, first, second) in [
        ("limits", "workflows=50", "running_runs=7"),
        ("hosts", "allowed_hosts=api.bank.example", "allowed_hosts=b.example"),
    ] {
        let path = format!("{page}/{part}");
        let [one, other] = [visitor.read_form(&page, &path).await, visitor.read_form(&page, &path).await];
        visitor.send_page_form(&one, first).await.expect(200);
        let refusal = visitor.send_page_form(&other, second).await.expect(412).text;
        assert!(refusal.contains("another edit came first"), "{refusal}");
    }
    let shown = visitor.read_page(&page).await;
    assert!(shown.contains(r#"name="workflows" value="50""#) && shown.contains("api.bank.example"), "{shown}");
    s.end().await;
}

/// A colleague creates a workflow while a visitor reads how many would be archived, which is final.
#[tokio::test]
async fn only_what_a_preview_counted_is_archived() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    for name in ["test 1", "test 2"] {
        s.create_with(json!({"name": name})).await;
    }
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let (path, act) = ("/workflows/bulk?verb=archive&all=true&q=test", "/workflows/bulk/start");
    let preview = visitor.read_page(path).await;
    assert!(preview.contains("archive 2 workflows"), "{preview}");
    let form = visitor.read_form(path, act).await;
    s.create_with(json!({"name": "payroll", "description": "not in test mode"})).await;
    let refusal = visitor.send_page_form(&form, "").await.expect(409).text;
    assert!(refusal.contains("the selection has changed"), "{refusal}");
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 0);
    let again = visitor.read_form(path, act).await;
    visitor.send_page_form(&again, "").await.expect(200);
    assert_eq!(s.count("SELECT total::bigint FROM bulk_operations").await, 3);
    s.end_early().await;
}

async fn fail(s: &Story, workflow: WorkflowId) {
    s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
    s.runs_end().await;
}

/// A further run fails while a visitor reads how many would be repeated. One that comes after the preview is not part of it.
#[tokio::test]
async fn only_what_a_preview_counted_is_repeated() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let workflow = s.create_with(json!({"action": refused_action(), "max_attempts": 1})).await;
    fail(&s, workflow).await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let (path, act) = ("/runs/bulk?verb=retry&all=true", "/runs/bulk");
    let preview = visitor.read_page(path).await;
    assert!(preview.contains("Retry 1 run<"), "{preview}");
    let form = visitor.read_form(path, act).await;
    fail(&s, workflow).await;
    let refusal = visitor.send_page_form(&form, "").await.expect(409).text;
    assert!(refusal.contains("the selection has changed"), "{refusal}");
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 0);
    let again = visitor.read_form(path, act).await;
    s.now_is("2026-03-02T08:31:00Z").await;
    fail(&s, workflow).await;
    visitor.send_page_form(&again, "").await.expect(200);
    assert_eq!(s.count("SELECT total::bigint FROM bulk_operations").await, 2);
    s.end_early().await;
}
