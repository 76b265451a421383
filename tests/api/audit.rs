//! The audit log: who changed what, from where and in which request.

use std::process::Stdio;
use std::time::Duration;

use access::failed_logins::FailedLogins;
use access::key_uses::KeyUses;
use app::api::request::page::encode_cursor;
use app::jobs::Did;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Api, Story};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use workflows::audit::verify::verify_part;

use crate::cronbox::{command, cronbox};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn entries_name_key_address_and_trace() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let request = s.editor().request(Method::PATCH, &format!("/api/v1/workflows/{wf}"));
    let request = request.header("traceparent", format!("00-{TRACE}-1111111111111111-01")).json(&json!({"name": "n"}));
    tests::send_request(request).await.expect(200);
    let origin = "SELECT concat_ws(' ', verb, team_id, actor_name, source_address, trace_id) FROM audit_log
                   WHERE subject LIKE 'workflow:%' AND verb = 'update'";
    assert_eq!(s.table(origin).await, format!("update {} local editor 127.0.0.1 {TRACE}", s.keys.team_id));
    let untraced = "SELECT count(*) FROM audit_log WHERE verb = 'create' AND subject LIKE 'workflow:%'
                       AND length(trace_id) = 32 AND source_address = '127.0.0.1'";
    assert_eq!(s.count(untraced).await, 1, "the app gives a trace to a request that has none");
    s.publish().await;
    s.end().await;
}

/// So that the members of the team may read them.
#[tokio::test]
async fn entries_name_the_team_of_their_object() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    let run = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
    s.runs_end().await;
    s.editor().post_empty(&format!("/api/v1/runs/{}:retry", run["run_id"].as_str().unwrap())).await.expect(202);
    s.runs_end().await;
    let span = json!({"start": "2026-03-01T08:00:00Z", "end": "2026-03-02T08:00:00Z", "only": "all", "timing": "now"});
    let backfill = s.editor().post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202).json;
    let backfill = format!("/api/v1/backfills/{}:cancel", backfill["id"].as_str().unwrap());
    s.editor().post_empty(&backfill).await.expect(200);
    let team = s.keys.team_id;
    let key = json!({"name": "k", "kind": "team", "team_id": team, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap())).await.expect(200);
    s.admin().post("/api/v1/drift:check", &json!({})).await.expect(202);
    let without = "SELECT DISTINCT split_part(subject, ':', 1) FROM audit_log WHERE team_id IS NULL ORDER BY 1";
    let of_admins = "SELECT count(*) FROM audit_log a JOIN api_keys k ON a.subject = 'key:' || k.id
                      WHERE (a.team_id IS NULL) <> (k.team_id IS NULL)";
    assert_eq!(s.table(without).await, "key\nsweep");
    assert_eq!(s.count(of_admins).await, 0);
    let with = "SELECT DISTINCT split_part(subject, ':', 1) FROM audit_log WHERE team_id IS NOT NULL ORDER BY 1";
    assert_eq!(s.table(with).await, "backfill\nkey\nrun\nteam\nworkflow");
    s.end_early().await;
}

/// The ids of the entries of a page.
fn ids(page: &Value) -> Vec<i64> {
    page["items"].as_array().unwrap().iter().map(|entry| entry["id"].as_i64().unwrap()).collect()
}

/// The entries of an export, and the cursor of the next one.
async fn export(api: &Api, query: &str) -> (Vec<Value>, String) {
    let answer = api.get(&format!("/api/v1/audit:export{query}")).await.expect(200);
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let entries = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (entries, answer.headers["next-cursor"].to_str().unwrap().to_owned())
}

fn subjects(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["subject"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn members_read_only_entries_of_their_team() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.edit(wf, json!({"name": "n"})).await;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let key = json!({"name": "o", "kind": "team", "team_id": other, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    let stranger = Api::new(s.url(), key["key"].as_str().unwrap());
    s.job("audit").await;

    let own = s.editor().get("/api/v1/audit").await.expect(200).json;
    let all = s.admin().get("/api/v1/audit").await.expect(200).json;
    let theirs = stranger.get("/api/v1/audit").await.expect(200).json;

    assert!(own["items"].as_array().unwrap().iter().all(|entry| entry["team_id"] == s.keys.team_id), "{own}");
    assert_eq!(own["items"][0]["subject"], format!("workflow:{wf}"));
    assert_eq!((&own["items"][0]["verb"], &own["items"][0]["after"]["name"]), (&json!("update"), &json!("n")));
    assert!(ids(&own).len() < ids(&all).len() && ids(&own).iter().all(|id| ids(&all).contains(id)));
    assert!(theirs["items"].as_array().unwrap().iter().all(|entry| entry["team_id"] == other), "{theirs}");
    assert_eq!(ids(&theirs).len(), 2, "the team and its key: {theirs}");
    let named = format!("/api/v1/audit?team_id={}", s.keys.team_id);
    assert_eq!(ids(&stranger.get(&named).await.expect(200).json), [0_i64; 0]);
    assert_eq!(ids(&s.admin().get(&named).await.expect(200).json), ids(&own));
    let (exported, _) = export(&stranger, "").await;
    assert!(exported.iter().all(|entry| entry["team_id"] == other) && exported.len() == 2, "{exported:?}");
    let (exported, _) = export(&stranger, &format!("?team_id={}", s.keys.team_id)).await;
    assert!(exported.is_empty(), "{exported:?}");
    stranger.get("/api/v1/audit:verify").await.refused(403, "forbidden", None);
    s.publish().await;
    s.end().await;
}

/// The entries of all teams have actors and addresses of other teams and of the operators.
#[tokio::test]
async fn all_entries_require_the_auditor_scope() {
    let s = Story::today().await;
    s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    let of_team = format!("/api/v1/audit?team_id={}", s.keys.team_id);
    for (scope, status) in [("read", 403), ("edit", 403), ("auditor", 200), ("operate", 200), ("admin", 200)] {
        let key = json!({"name": scope, "kind": "admin", "scopes": [scope]});
        let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
        let api = Api::new(s.url(), key["key"].as_str().unwrap());
        for path in ["/api/v1/audit", "/api/v1/audit:export"] {
            assert_eq!(api.get(path).await.status, status, "{path} with {scope}");
        }
        assert!(!ids(&api.get(&of_team).await.expect(200).json).is_empty(), "{scope}");
    }
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn entries_are_filtered_and_paged() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let [first, second] = [s.create("0 9 * * *", "UTC").await, s.create("0 9 * * *", "UTC").await];
    s.now_is("2026-03-02T08:59:30Z").await;
    s.edit(first, json!({"name": "n"})).await;
    let of = async |query: &str| -> Vec<String> {
        let page = s.editor().get(&format!("/api/v1/audit?{query}")).await.expect(200).json;
        let word = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
        let items = page["items"].as_array().unwrap();
        items.iter().map(|entry| word(entry, "verb") + " " + &word(entry, "subject")).collect()
    };
    let [create_first, create_second] = [first, second].map(|wf| format!("create workflow:{wf}"));
    let update = format!("update workflow:{first}");
    assert_eq!(of(&format!("subject=workflow:{first}")).await, [update.clone(), create_first.clone()]);
    assert_eq!(of("verb=update").await, std::slice::from_ref(&update));
    assert_eq!(of("from=2026-03-02T08:59:30Z").await, std::slice::from_ref(&update));
    assert_eq!(of("actor=local%20editor&limit=2").await, [update.clone(), create_second.clone()]);
    assert_eq!(of("actor=local%20editor&to=2026-03-02T08:59:30Z").await, [create_second.clone(), create_first.clone()]);
    assert_eq!(of(&format!("subject=workflow:{first}&verb=create")).await, std::slice::from_ref(&create_first));
    assert_eq!(of("actor=stranger").await, [""; 0]);
    let page = s.editor().get("/api/v1/audit?limit=2").await.expect(200).json;
    let next = of(&format!("limit=1&cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!(next, [create_first]);
    s.editor().get("/api/v1/audit?verbs=x").await.refused(400, "unknown_field", Some("verbs"));
    s.editor().get("/api/v1/audit:export?limit=0").await.refused(400, "invalid_field", Some("limit"));
    s.editor().get("/api/v1/audit:export?cursor=!").await.refused(400, "invalid_cursor", Some("cursor"));
    s.publish().await;
    s.end().await;
}

/// An entry has its id before its transaction commits. A follower must not pass over the id of an open transaction.
#[tokio::test]
async fn a_follower_skips_no_late_commit() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    let (_, cursor) = export(&s.admin(), "").await;
    let mut open = db::begin_transaction(&s.pool).await.unwrap();
    let late = "INSERT INTO audit_log (at, actor, verb, subject) VALUES (cronbox_now(), 'x', 'late', 'late')";
    sqlx::query(late).execute(&mut *open).await.unwrap();
    s.edit(wf, json!({"name": "n"})).await;

    let turn = s.job("audit").await;
    let (while_open, same) = export(&s.admin(), &format!("?cursor={cursor}")).await;
    open.commit().await.unwrap();
    s.job("audit").await;
    let (after, last) = export(&s.admin(), &format!("?cursor={same}")).await;

    assert!(matches!(turn, Did::Waits(_)), "{turn:?}");
    assert_eq!((subjects(&while_open), &same), (vec![], &cursor), "the edit has a higher id than the open entry");
    assert_eq!(subjects(&after), ["late", format!("workflow:{wf}").as_str()]);
    let (nothing, unchanged) = export(&s.admin(), &format!("?cursor={last}")).await;
    assert_eq!((subjects(&nothing), unchanged), (vec![], last));
    s.publish().await;
    s.end().await;
}

/// Small pages of an export and of a filtered one have every entry once.
#[tokio::test]
async fn pages_of_an_export_have_each_entry_once() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let many = "INSERT INTO audit_log (at, actor, verb, subject)
                SELECT cronbox_now(), 'x', CASE WHEN n % 3000 = 0 THEN 'rare' ELSE 'often' END, 'n:' || n FROM generate_series(1, 12000) AS n";
    s.execute(many).await;
    s.edit(wf, json!({"name": "n"})).await;
    while let Did::Some(_) = s.job("audit").await {}
    let all = async |query: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let (entries, next) = export(&s.admin(), &format!("?{query}{cursor}")).await;
            let next = format!("&cursor={next}");
            if entries.is_empty() && next == cursor {
                return found;
            }
            found.extend(entries.iter().map(|entry| entry["id"].as_i64().unwrap()));
            cursor = next;
        }
    };
    let expected: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM audit_log ORDER BY id").fetch_all(&s.pool).await.unwrap();
    assert_eq!(all("limit=700").await, expected);
    assert_eq!(all("verb=rare").await.len(), 4);
    let mut listed = 0;
    let mut cursor = String::new();
    loop {
        let page = s.admin().get(&format!("/api/v1/audit?verb=rare&limit=3{cursor}")).await.expect(200).json;
        listed += ids(&page).len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed, 4);
    s.publish().await;
    s.end().await;
}

/// Changes made by the owner, whose triggers are off.
async fn tamper(s: &Story, statement: &str) {
    let all = format!("BEGIN; SET LOCAL session_replication_role = replica; {statement}; COMMIT");
    sqlx::raw_sql(sqlx::AssertSqlSafe(all)).execute(&s.pool).await.unwrap();
}

async fn differences(s: &Story) -> Vec<String> {
    let found = s.admin().get("/api/v1/audit:verify").await.expect(200).json;
    let kinds = found["differences"].as_array().unwrap().iter();
    kinds.map(|difference| difference["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn verification_finds_each_tampering() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    // An id that no entry has.
    s.execute("SELECT nextval(pg_get_serial_sequence('audit_log', 'id'))").await;
    for name in ["a", "b", "c"] {
        s.edit(wf, json!({"name": name})).await;
    }
    s.job("audit").await;
    s.edit(wf, json!({"name": "d"})).await;
    s.job("audit").await;
    let (code, said) = cronbox(&s, &["audit", "verify"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing differs"), "{said}");

    let second = "(SELECT min(id) FROM audit_log WHERE verb = 'update')";
    for (kind, change, undo) in [
        (
            "changed",
            format!("UPDATE audit_log SET actor = 'x' || actor WHERE id = {second}"),
            format!("UPDATE audit_log SET actor = substr(actor, 2) WHERE id = {second}"),
        ),
        (
            "changed",
            format!("UPDATE audit_log SET after = after || '{{\"name\": \"z\"}}' WHERE id = {second}"),
            format!("UPDATE audit_log SET after = after || '{{\"name\": \"a\"}}' WHERE id = {second}"),
        ),
        (
            "changed",
            format!("UPDATE audit_log SET source_address = '192.0.2.1' WHERE id = {second}"),
            format!("UPDATE audit_log SET source_address = '127.0.0.1' WHERE id = {second}"),
        ),
        (
            "removed",
            format!(
                "CREATE TABLE kept AS SELECT * FROM audit_log WHERE id = {second}; DELETE FROM audit_log WHERE id = {second}"
            ),
            "INSERT INTO audit_log OVERRIDING SYSTEM VALUE SELECT * FROM kept; DROP TABLE kept".to_owned(),
        ),
        (
            "inserted",
            format!(
                "INSERT INTO audit_log (id, at, actor, verb, subject, team_id) OVERRIDING SYSTEM VALUE
                       SELECT id - 1, at, actor, 'forged', subject, team_id FROM audit_log WHERE id = {second}"
            ),
            "DELETE FROM audit_log WHERE verb = 'forged'".to_owned(),
        ),
        (
            "inserted",
            format!(
                "INSERT INTO audit_log (id, at, actor, verb, subject, team_id) OVERRIDING SYSTEM VALUE
                       SELECT id - 1, at, actor, 'forged', subject, 999 FROM audit_log WHERE id = {second}"
            ),
            "DELETE FROM audit_log WHERE verb = 'forged'".to_owned(),
        ),
        (
            "changed",
            "UPDATE audit_chain SET hash = sha256(hash) WHERE sequence = 1 AND team_id = 0".to_owned(),
            String::new(),
        ),
    ] {
        tamper(&s, &change).await;
        let found = differences(&s).await;
        assert!(found.contains(&kind.to_owned()), "{change}: {found:?}");
        let (code, said) = cronbox(&s, &["audit", "verify"]).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(kind), "{said}");
        if !undo.is_empty() {
            tamper(&s, &undo).await;
            assert_eq!(differences(&s).await, [""; 0], "{undo}");
        }
    }
    s.publish().await;
    s.end().await;
}

/// A missing block shows, also if its entries are gone with it.
#[tokio::test]
async fn verification_finds_removed_blocks() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    for name in ["a", "b", "c"] {
        s.job("audit").await;
        s.edit(wf, json!({"name": name})).await;
    }
    s.job("audit").await;
    assert_eq!(differences(&s).await, [""; 0]);
    let middle = "(SELECT through_id FROM audit_chain WHERE team_id > 0 AND sequence = 2)";
    tamper(
        &s,
        &format!("DELETE FROM audit_log WHERE id = {middle}; DELETE FROM audit_chain WHERE through_id = {middle}"),
    )
    .await;
    assert!(differences(&s).await.contains(&"removed".to_owned()));
    for refused in ["UPDATE audit_chain SET entry_count = 1", "DELETE FROM audit_chain", "TRUNCATE audit_chain"] {
        let error = sqlx::raw_sql(refused).execute(&s.pool).await.unwrap_err();
        assert!(error.to_string().contains("audit_chain is append-only"), "{refused}: {error}");
    }
    s.publish().await;
    s.end().await;
}

/// A cursor that no part returned would begin behind the tampering, and prove nothing.
#[tokio::test]
async fn verification_refuses_foreign_cursors() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    let newest: i64 = sqlx::query_scalar("SELECT max(through_id) FROM audit_chain").fetch_one(&s.pool).await.unwrap();
    for id in [i64::MIN, -1, newest - 1, newest + 1, i64::MAX] {
        let path = format!("/api/v1/audit:verify?cursor={}", encode_cursor(id));
        s.admin().get(&path).await.refused(400, "invalid_cursor", Some("cursor"));
    }
    for id in [0, newest] {
        s.admin().get(&format!("/api/v1/audit:verify?cursor={}", encode_cursor(id))).await.expect(200);
    }
    s.edit(wf, json!({"name": "n"})).await;
    s.publish().await;
    s.end().await;
}

/// A long log is read in parts, each of which is short, so that none ends at the limit of a read.
#[tokio::test]
async fn a_verification_without_time_reads_one_batch() {
    let s = Story::today().await;
    s.job("audit").await;
    for _ in 0..3 {
        s.execute("INSERT INTO audit_log (at, actor, verb, subject) VALUES (cronbox_now(), 'x', 'v', 's')").await;
        s.job("audit").await;
    }
    let ends = sqlx::query_scalar("SELECT DISTINCT through_id FROM audit_chain ORDER BY through_id");
    let ends: Vec<i64> = ends.fetch_all(&s.pool).await.unwrap();
    let (mut parts, mut entries, mut after) = (Vec::new(), 0, 0);
    loop {
        let mut tx = db::begin_read(&s.pool).await.unwrap();
        let part = verify_part(&mut tx, after, Duration::ZERO).await.unwrap().expect("its own cursor");
        tx.commit().await.unwrap();
        entries += part.entries;
        after = part.through_id;
        parts.push(after);
        assert_eq!(part.differences, []);
        if !part.has_more {
            break;
        }
    }
    assert_eq!(parts, ends);
    assert_eq!(entries, s.count("SELECT count(*) FROM audit_log").await);
    s.end().await;
}

/// The blocks begin at id 1, so entries with lower ids are in none of them.
#[tokio::test]
async fn verification_finds_entries_below_the_first_id() {
    let s = Story::today().await;
    s.job("audit").await;
    assert_eq!(differences(&s).await, [""; 0]);
    for id in [0, -5, i64::MIN] {
        let forged = format!(
            "INSERT INTO audit_log (id, at, actor, verb, subject) OVERRIDING SYSTEM VALUE
             VALUES ({id}, cronbox_now(), 'x', 'forged', 'x')"
        );
        tamper(&s, &forged).await;
        assert_eq!(differences(&s).await, ["inserted"], "{id}");
        tamper(&s, "DELETE FROM audit_log WHERE verb = 'forged'").await;
    }
    s.end().await;
}

/// The list passes over the newer entries of the object only once.
#[tokio::test]
async fn pages_of_an_object_have_each_entry_once() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    s.execute(
        "INSERT INTO audit_log (at, actor, verb, subject)
         SELECT CASE WHEN n <= 3 THEN '2026-01-15'::timestamptz ELSE cronbox_now() END, 'x', 'v', 'thing:1'
           FROM generate_series(1, 6000) AS n",
    )
    .await;
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    for _ in 0..5 {
        let path = format!("/api/v1/audit?subject=thing:1&to=2026-02-01T00:00:00Z{cursor}");
        let page = s.admin().get(&path).await.expect(200).json;
        listed.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed.len(), 3, "{listed:?}");
    s.end().await;
}

/// Each entry is in one block, however many instances run the job, and if one of them is killed in the middle.
#[tokio::test]
async fn concurrent_jobs_chain_each_entry_once() {
    let s = Story::today().await;
    s.execute("INSERT INTO audit_log (at, actor, verb, subject) SELECT cronbox_now(), 'x', 'v', 'n:' || n FROM generate_series(1, 3500) AS n").await;
    let extend = || workflows::audit::chain::extend_chain(&s.pool);
    let turns = tokio::join!(extend(), extend(), extend(), extend());
    for turn in [turns.0, turns.1, turns.2, turns.3] {
        turn.unwrap();
    }
    // A killed instance: its transaction has the lock and a block, and ends without a commit.
    let mut killed = db::begin_transaction(&s.pool).await.unwrap();
    let unfinished = "INSERT INTO audit_chain (team_id, sequence, month, after_id, through_id, entry_count, hash)
                 SELECT 0, max(sequence) + 1, max(month), max(through_id), max(through_id) + 1, 1, '' FROM audit_chain";
    sqlx::query("SELECT pg_advisory_xact_lock(7022629598041172065)").execute(&mut *killed).await.unwrap();
    sqlx::query(unfinished).execute(&mut *killed).await.unwrap();
    s.execute("INSERT INTO audit_log (at, actor, verb, subject) VALUES (cronbox_now(), 'x', 'v', 'last')").await;
    assert!(matches!(s.job("audit").await, Did::Waits(_)), "the other instance extends the chain");
    killed.rollback().await.unwrap();
    s.job("audit").await;
    let twice = "SELECT count(*) FROM audit_log a WHERE 1 <> (
                     SELECT count(*) FROM audit_chain c WHERE c.team_id = COALESCE(a.team_id, 0)
                        AND a.id > c.after_id AND a.id <= c.through_id AND c.month = date_trunc('month', a.at, 'UTC'))";
    assert_eq!(s.count(twice).await, 0);
    assert_eq!(
        s.count("SELECT (SELECT sum(entry_count) FROM audit_chain)::bigint - (SELECT count(*) FROM audit_log)").await,
        0
    );
    assert_eq!(differences(&s).await, [""; 0]);
    s.end().await;
}

#[tokio::test]
async fn failed_logins_are_one_entry_per_minute() {
    let s = Story::at("2026-03-02T08:59:10Z").await;
    let stranger = Api::new(s.url(), "let me in");
    for _ in 0..5 {
        stranger.get("/api/v1/workflows").await.refused(401, "unauthorized", None);
    }
    Api::without_key(s.url()).get("/api/v1/workflows").await.refused(401, "unauthorized", None);
    assert_eq!(s.count("SELECT count(*) FROM failed_logins").await, 0, "no request writes");
    s.now_is("2026-03-02T09:00:10Z").await;
    s.job("audit").await;
    // Another instance has counted requests of the same client.
    let other = FailedLogins::default();
    other.count("127.0.0.1".parse().unwrap(), "2026-03-02T08:59:59Z".parse().unwrap());
    other.store_all(&s.pool).await.unwrap();
    let entries = "SELECT concat_ws(' ', at AT TIME ZONE 'UTC', actor, subject, source_address, after) FROM audit_log
                    WHERE verb = 'login.failed'";
    assert_eq!(s.table(entries).await, "", "the minute waits for the counters of all instances");
    s.now_is("2026-03-02T09:01:00Z").await;
    s.job("audit").await;
    s.job("audit").await;
    let expected = "2026-03-02 08:59:00 address:127.0.0.1 address:127.0.0.1 127.0.0.1 {\"failures\": 6}";
    assert_eq!(s.table(entries).await, expected);
    assert_eq!(s.count("SELECT count(*) FROM failed_logins").await, 0);
    let of_team = s.editor().get("/api/v1/audit?verb=login.failed").await.expect(200).json;
    assert_eq!(ids(&of_team), [0_i64; 0], "only admins read them");
    assert_eq!(ids(&s.admin().get("/api/v1/audit?verb=login.failed").await.expect(200).json).len(), 1);
    s.end().await;
}

/// Cancels `work` when its statement waits for a lock that `lock` takes, and lets no part of the statement succeed.
async fn cancel_at_lock(s: &Story, lock: &'static str, work: impl Future<Output = sqlx::Result<()>>) {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut locking = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query(lock).execute(&mut *locking).await.unwrap();
    tokio::select! {
        ended = work => panic!("it needs the lock: {ended:?}"),
        () = s.until(waiting, 1) => {}
    }
    s.count(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    .await;
    s.until(waiting, 0).await;
    locking.rollback().await.unwrap();
}

/// The job's turn may be stopped at any point, and its instance may end.
#[tokio::test]
async fn a_cancelled_store_keeps_failed_logins() {
    const LOCK: &str = "LOCK TABLE failed_logins IN EXCLUSIVE MODE";
    let s = Story::today().await;
    let logins = FailedLogins::default();
    logins.count("192.0.2.7".parse().unwrap(), "2026-03-02T08:58:00Z".parse().unwrap());
    let later = "2026-03-02T08:59:00Z".parse().unwrap();
    cancel_at_lock(&s, LOCK, logins.store_all(&s.pool)).await;
    cancel_at_lock(&s, LOCK, logins.store_ended_minutes(&s.pool, later)).await;
    logins.store_ended_minutes(&s.pool, later).await.unwrap();
    logins.store_all(&s.pool).await.unwrap();
    assert_eq!(s.count("SELECT sum(failures)::bigint FROM failed_logins WHERE address = '192.0.2.7'").await, 1);
    s.end().await;
}

#[tokio::test]
async fn a_cancelled_write_keeps_key_uses() {
    let s = Story::today().await;
    let key = sqlx::query_scalar("SELECT id FROM api_keys ORDER BY id LIMIT 1").fetch_one(&s.pool).await.unwrap();
    let uses = KeyUses::default();
    uses.note(key, "192.0.2.7".parse().unwrap(), s.clock.now());
    cancel_at_lock(&s, "LOCK TABLE api_keys IN EXCLUSIVE MODE", uses.write(&s.pool)).await;
    uses.write(&s.pool).await.unwrap();
    assert_eq!(s.count("SELECT count(*) FROM api_keys WHERE last_used_from = '192.0.2.7'").await, 1);
    s.end().await;
}

#[tokio::test]
async fn cronbox_audit_lists_and_exports() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    let subject = format!("workflow:{wf}");
    let (code, said) = cronbox(&s, &["audit", "ls", "--subject", &subject]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("ENTRY ") && said.contains(&subject) && said.contains("local editor"), "{said}");
    let (code, said) = cronbox(&s, &["audit", "ls", "--verb", "none"]).await;
    assert_eq!((code, said.as_str()), (Some(0), "nothing\n"));
    let (code, said) = cronbox(&s, &["audit", "export", "--subject", &subject]).await;
    assert_eq!(code, Some(0), "{said}");
    let (entry, cursor) = said.trim().split_once('\n').unwrap();
    assert_eq!(serde_json::from_str::<Value>(entry).unwrap()["subject"], subject);
    s.edit(wf, json!({"name": "n"})).await;
    s.job("audit").await;
    let cursor = cursor.strip_prefix("cursor: ").unwrap();
    let (code, said) = cronbox(&s, &["audit", "export", "--cursor", cursor, "--subject", &subject]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\"update\"") && !said.contains("\"create\""), "{said}");
    let (code, said) = cronbox(&s, &["audit", "verify", "--json"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["ends"].as_array().map(Vec::len), Some(2), "{said}");
    s.publish().await;
    s.end().await;
}

/// What the log does not show must still be seen to have changed. A digest of a URL would permit a viewer to find its token.
#[tokio::test]
async fn hidden_changes_are_named_without_values() {
    let s = Story::today().await;
    let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/1234",
                        "headers": {"authorization": "a", "x-same": "b"}, "body": {"pin": {"secret": "1"}}});
    let workflow = json!({"name": "n", "cron_schedule": "0 9 * * *", "action": action});
    let wf = s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id();
    let path = format!("/api/v1/workflows/{wf}");
    let changed = json!({"action": {"url": "http://127.0.0.1:8009/4321", "headers": {"authorization": "c"}}});
    s.editor().merge_patch(&path, &changed).await.expect(200);
    s.editor().patch(&path, &json!({"name": "m"})).await.expect(200);
    let entries = s.editor().get(&format!("/api/v1/audit?subject=workflow:{wf}")).await.expect(200);
    let after = |i: usize| entries.json["items"][i]["after"].clone();
    assert_eq!(after(1)["hidden_changes"], json!(["action.url", "action.headers.authorization"]), "{}", entries.text);
    assert_eq!(after(0)["hidden_changes"], Value::Null);
    assert_eq!(after(2)["action"]["url"], "http://127.0.0.1:8009");
    assert!(!entries.text.contains("url_sha256"), "{}", entries.text);
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn members_see_no_address_of_operators() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.admin().patch(&format!("/api/v1/workflows/{wf}"), &json!({"name": "n"})).await.expect(200);
    s.job("audit").await;
    let addresses = async |api: &Api| {
        let page = api.get(&format!("/api/v1/audit?subject=workflow:{wf}")).await.expect(200).json;
        let (exported, _) = export(api, &format!("?subject=workflow:{wf}")).await;
        let of = |entries: &[Value]| entries.iter().map(|entry| entry["source_address"].clone()).collect::<Vec<_>>();
        let mut listed = of(page["items"].as_array().unwrap());
        listed.reverse();
        assert_eq!(of(&exported), listed);
        listed
    };
    assert_eq!(addresses(&s.editor()).await, [json!("127.0.0.1"), Value::Null]);
    assert_eq!(addresses(&s.admin()).await, [json!("127.0.0.1"), json!("127.0.0.1")]);
    s.publish().await;
    s.end().await;
}

/// Entries may be so large that an answer has only some of them.
#[tokio::test]
async fn an_export_ends_when_it_is_full_of_bytes() {
    let s = Story::today().await;
    s.execute(
        "INSERT INTO audit_log (at, actor, verb, subject, after)
         SELECT cronbox_now(), 'x', 'v', 'large', jsonb_build_object('a', repeat('x', 50000)) FROM generate_series(1, 120)",
    )
    .await;
    s.job("audit").await;
    let (first, cursor) = export(&s.admin(), "?subject=large").await;
    let (second, _) = export(&s.admin(), &format!("?subject=large&cursor={cursor}")).await;
    assert!((50..85).contains(&first.len()), "4 MiB: {}", first.len());
    assert_eq!(first.len() + second.len(), 120);
    s.end().await;
}

/// Its owner can compute the chain anew, and even empty it, but not to the ends that are stored elsewhere.
#[tokio::test]
async fn stored_ends_show_a_new_chain() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.job("audit").await;
    let file = std::env::temp_dir().join(format!("cronbox-ends-{}.json", uuid::Uuid::new_v4()));
    let arguments = ["audit", "verify", "--ends", file.to_str().unwrap()];
    for name in ["a", "b"] {
        let (code, said) = cronbox(&s, &arguments).await;
        assert_eq!(code, Some(0), "{said}");
        s.edit(wf, json!({"name": name})).await;
        s.job("audit").await;
    }
    let stored = std::fs::read_to_string(&file).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap().as_array().map(Vec::len), Some(2), "{stored}");
    tamper(&s, "DELETE FROM audit_chain").await;
    for _ in 0..2 {
        let (code, said) = cronbox(&s, &arguments).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("replaced") && said.contains("2 differences"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), stored, "the evidence is kept");
        // The chain is computed anew, with other blocks.
        s.job("audit").await;
    }
    std::fs::remove_file(&file).unwrap();
    s.admin().get("/api/v1/audit:verify?blocks=1").await.refused(400, "invalid_field", Some("blocks"));
    s.publish().await;
    s.end().await;
}

/// Characters that control a terminal are escapes of the same text; in a table they cannot begin a line.
#[tokio::test]
async fn printed_entries_keep_their_text() {
    let s = Story::today().await;
    s.execute("INSERT INTO audit_log (at, actor, verb, subject) VALUES (cronbox_now(), E'x\\u009b31m\\u2028y', 'v', E'line\\nFORGED')").await;
    s.job("audit").await;
    for arguments in [["audit", "export", "--verb", "v"].as_slice(), &["audit", "ls", "--verb", "v", "--json"]] {
        let (code, said) = cronbox(&s, arguments).await;
        let line = said.lines().next().unwrap();
        assert_eq!(code, Some(0), "{said}");
        let entry: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&entry["actor"], line.contains('\u{9b}')), (&json!("x\u{9b}31m\u{2028}y"), false), "{line:?}");
    }
    let (_, table) = cronbox(&s, &["audit", "ls", "--verb", "v"]).await;
    assert_eq!(table.lines().count(), 2, "{table}");
    s.end().await;
}

#[tokio::test]
async fn an_interrupted_follower_prints_its_cursor() {
    let s = Story::today().await;
    s.job("audit").await;
    let start = || {
        let mut follower = command(&s, &["audit", "export", "--follow"]);
        follower.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    };
    let read_line = async |follower: &mut tokio::process::Child| {
        let mut output = BufReader::new(follower.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        (line, output)
    };
    let mut interrupted = start();
    let (line, output) = read_line(&mut interrupted).await;
    let pid = interrupted.id().unwrap().to_string();
    tokio::process::Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
    let ended = interrupted.wait().await.unwrap();
    let mut said = String::new();
    interrupted.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert_eq!(ended.code(), Some(130), "{said}");
    assert!(said.starts_with("cursor: "), "{said}");
    drop(output);

    let mut unread = start();
    let (_, output) = read_line(&mut unread).await;
    drop(output);
    s.execute("INSERT INTO audit_log (at, actor, verb, subject) VALUES (cronbox_now(), 'x', 'v', 'last')").await;
    s.job("audit").await;
    let ended = tokio::time::timeout(tests::PATIENCE, unread.wait()).await.expect("its reader has exited").unwrap();
    assert_eq!(ended.code(), Some(0));
    s.end().await;
}
