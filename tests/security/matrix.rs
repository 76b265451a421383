//! Every route of the app's table, every kind of caller (a key, or a person with a token), and every kind of id of another
//! team.
//!
//! A caller that a route does not accept, and a caller of another team, must not learn whether an id exists: the answer
//! for it equals the answer for a missing id, byte for byte.

use std::collections::BTreeMap;

use access::key_text::add_checksum;
use app::api::routes::{Access, ROUTES};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::StreamExt as _;
use reqwest::Method;
use schedule::Clock;
use serde_json::{Value, json};
use tests::{Answer, Api, Story};

use crate::Size;
use crate::ground::{create_key, create_team, idle_story, team_key};
use crate::identity_provider::IdentityProvider;
use crate::process::App;
use crate::report::Tally;

/// Requests at once.
const AT_ONCE: usize = 8;
/// In the name of each object of the attacked team, and nowhere else.
const MARKER: &str = "attacked-7f3a";
/// Where a channel of AWS leads.
const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:alerts";
/// What is the same, whatever the attacks send; the jobs of the attacked app are off.
const STATE: [&str; 10] = [
    "SELECT t::text FROM workflows t ORDER BY id",
    "SELECT t::text FROM runs t ORDER BY id",
    "SELECT t::text FROM backfills t ORDER BY id",
    "SELECT t::text FROM teams t ORDER BY id",
    "SELECT t::text FROM team_limits t ORDER BY team_id",
    "SELECT t::text FROM team_secrets t ORDER BY team_id, name",
    "SELECT t::text FROM outbox_events t ORDER BY id",
    "SELECT t::text FROM dead_letters t ORDER BY id",
    "SELECT t::text FROM console_sessions t ORDER BY id",
    "SELECT (id, prefix, revoked_on)::text FROM api_keys t ORDER BY id",
];

/// A kind of caller.
struct Caller {
    name: &'static str,
    api: Api,
    /// Where it sends its key, if not in the usual header.
    elsewhere: Option<(&'static str, String)>,
    rank: Rank,
    /// Whether it is a person, who has no key of their own.
    is_person: bool,
}

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Nothing,
    /// A person of the provider, without a group that gives a role.
    NoRole,
    Viewer,
    Editor,
    Scheduler,
    Auditor,
    Operator,
    Admin,
}

impl Caller {
    fn new(name: &'static str, api: Api, rank: Rank) -> Self {
        Self { name, api, elsewhere: None, rank, is_person: false }
    }

    /// A person with this value of `Authorization`.
    fn person(name: &'static str, api: Api, bearer: String, rank: Rank) -> Self {
        Self { elsewhere: Some(("authorization", bearer)), is_person: true, ..Self::new(name, api, rank) }
    }

    /// Whether it belongs to the other team.
    fn is_other(&self) -> bool {
        self.name.starts_with("other")
    }

    fn is_accepted(&self, access: Access) -> bool {
        match access {
            Access::Open => true,
            Access::Caller => !matches!(self.rank, Rank::Nothing | Rank::NoRole),
            Access::Owner => !matches!(self.rank, Rank::Nothing | Rank::NoRole) && !self.is_person,
            Access::KeyHolder => {
                !matches!(self.rank, Rank::Nothing | Rank::NoRole | Rank::Scheduler) && !self.is_person
            }
            Access::Viewer => !matches!(self.rank, Rank::Nothing | Rank::NoRole | Rank::Scheduler),
            Access::Editor => matches!(self.rank, Rank::Editor | Rank::Admin),
            Access::Auditor => matches!(self.rank, Rank::Auditor | Rank::Operator | Rank::Admin),
            Access::Operator => matches!(self.rank, Rank::Operator | Rank::Admin),
            Access::Admin => self.rank == Rank::Admin,
            Access::Scheduler => self.rank == Rank::Scheduler,
        }
    }
}

/// The ids of the attacked team, by the path in front of the id; the first of each is of no object.
type Ids = BTreeMap<&'static str, Vec<String>>;

/// One request of the matrix.
struct Cell<'a> {
    caller: &'a Caller,
    method: Method,
    path: &'static str,
    access: Access,
    body: Value,
}

/// Sends every cell of the matrix.
pub(crate) async fn attack_routes(size: Size) -> Tally {
    let s = idle_story().await;
    let other = create_team(&s, "others").await;
    let provider = IdentityProvider::start(&group_rules(s.keys.team_id, other)).await;
    let settings: Vec<_> = [("CRONBOX_EXECUTOR_SLOTS", "0")].into_iter().chain(provider.settings()).collect();
    let app = App::start(&s.dsn(), &settings).await;
    let (ids, mut callers) = (attacked_ids(&s).await, keys(&s, &app, other).await);
    callers.extend(people(&provider, &app, s.clock.now()));
    let before = state(&s).await;
    let mut tally = Tally::default();
    let (refused, controls): (Vec<_>, Vec<_>) = cells(&callers, size)
        .into_iter()
        .partition(|cell| !cell.caller.is_accepted(cell.access) || cell.caller.is_other());
    let sent = futures::stream::iter(&refused).map(|cell| send_for_each_id(cell, &ids)).buffer_unordered(AT_ONCE);
    for part in sent.collect::<Vec<_>>().await {
        tally.add(part);
    }
    if state(&s).await != before {
        tally.fail("the attacked team's rows have changed");
    }
    // The accepted callers prove that the others are refused because of their keys, and not because nothing works.
    for cell in &controls {
        let answer = send(cell, &missing(cell.path, &ids)).await;
        let is_accepted = !matches!(answer.status, 401 | 403 | 429 | 500..);
        tally.record(is_accepted, || {
            format!("{} {} {} is not accepted: {answer:?}", cell.caller.name, cell.method, cell.path)
        });
    }
    app.stop().await;
    provider.stop();
    s.end_early().await;
    tally
}

fn cells(callers: &[Caller], size: Size) -> Vec<Cell<'_>> {
    let mut cells = Vec::new();
    let undescribed = [("get", "/openapi.json", Access::Open), ("get", "/docs/", Access::Open)];
    let routes = ROUTES.iter().map(|route| (route.method, route.path, route.access)).chain(undescribed);
    for (method, path, access) in routes {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        for caller in callers {
            let mut bodies = vec![json!({})];
            // Of the accepted callers, only the other team's may send a body that could change something.
            let is_refused = !caller.is_accepted(access);
            if is_refused || (caller.is_other() && path.contains('{')) {
                bodies.push(valid_body(&method, path));
            }
            if size == Size::Full && is_refused {
                bodies.extend([json!(null), json!([]), json!("x"), json!({"team_id": 1, "id": 1, "kind": "admin"})]);
            }
            cells.extend(bodies.into_iter().map(|body| Cell { caller, method: method.clone(), path, access, body }));
        }
    }
    cells
}

/// A body that changes something if the route accepts the caller.
fn valid_body(method: &Method, path: &str) -> Value {
    match (method.as_str(), path) {
        ("POST", "/api/v1/teams") => json!({"name": "stolen"}),
        ("POST", "/api/v1/keys") => json!({"name": "stolen", "kind": "admin"}),
        ("POST", "/api/v1/workflows") => json!({"name": "stolen", "action": {"type": "log", "message": "stolen"}}),
        ("POST", "/api/v1/bulk") => json!({"verb": "archive"}),
        ("POST", "/api/v1/freezes") => json!({"reason": "stolen"}),
        ("POST", "/api/v1/notification-channels") => {
            json!({"name": "stolen", "kind": "aws", "target_arn": TOPIC, "default_rules": true})
        }
        ("PUT", "/api/v1/notification-channels/{id}") => json!({"name": "stolen", "kind": "aws", "target_arn": TOPIC}),
        ("POST", "/api/v1/notification-rules") => json!({"event": "missed", "channel_ids": [1]}),
        ("PUT", "/api/v1/notification-rules/{id}") => json!({"event": "missed", "channel_ids": [1]}),
        ("PUT", "/api/v1/teams/{id}/secrets/{name}") => json!({"value": "stolen"}),
        ("POST", "/api/v1/teams/{id}:rotate-signing-secret") => json!({"overlap_secs": 0}),
        ("POST", "/api/v1/teams/{id}:receiver-secret") => json!({"origin": "https://receiver.example"}),
        ("PATCH", "/api/v1/teams/{id}") => json!({"name": "stolen"}),
        ("PUT", "/api/v1/teams/{id}/limits") => json!({"workflows": 1}),
        ("PUT", "/api/v1/teams/{id}/hosts") => json!({"allowed_hosts": []}),
        ("PATCH", "/api/v1/workflows/{id}") => json!({"description": "stolen"}),
        ("PUT" | "PATCH", "/api/v1/schedules/{id}") => json!({"cron_schedule": "* * * * *"}),
        ("POST", "/api/v1/schedules/{id}:backfill") => {
            // Within the retention: the refusal of an older span names the present second, so two of them may differ.
            let midnight =
                |days| (Clock::System.now() - TimeDelta::days(days)).format("%Y-%m-%dT00:00:00Z").to_string();
            json!({"start": midnight(3), "end": midnight(2), "only": "all"})
        }
        ("POST", "/api/v1/cron/workflows/{id}:invoke") => json!({"scheduled_time": "2026-01-01T00:00:00Z"}),
        ("POST", "/api/v1/cron:explain") => json!({"cron_schedule": "* * * * *", "timezone": "UTC"}),
        ("POST", path) if path.ends_with(":pause") => json!({"reason": "stolen"}),
        _ => json!({}),
    }
}

/// Sends a cell for the missing id and for each id of the attacked team, and compares the answers.
async fn send_for_each_id(cell: &Cell<'_>, ids: &Ids) -> Tally {
    let mut tally = Tally::default();
    let name = || format!("{} {} {} {}", cell.caller.name, cell.method, cell.path, cell.body);
    let without = send(cell, &missing(cell.path, ids)).await;
    let is_refused = match cell.caller.is_accepted(cell.access) {
        true => without.status < 500,
        false => refuses(&without, cell.caller),
    };
    tally.record(is_refused, || format!("{}: {without:?}", name()));
    if !cell.path.contains("{id}") {
        return tally;
    }
    let Some(ids) = ids_of(cell.path, ids) else {
        tally.fail(format!("attacked_ids() has no ids for {}", cell.path));
        return tally;
    };
    let expected = comparable(&without, &ids[0]);
    for id in &ids[1..] {
        let answer = send(cell, &filled(cell.path, id)).await;
        let is_same = comparable(&answer, id) == expected;
        tally.record(is_same && answer.status >= 400, || format!("{} for {id}: {answer:?}", name()));
    }
    tally
}

fn refuses(answer: &Answer, caller: &Caller) -> bool {
    let expected = match caller.rank {
        Rank::Nothing => (401, "unauthorized"),
        _ => (403, "forbidden"),
    };
    (answer.status, answer.json["code"].as_str().unwrap_or_default()) == expected
}

async fn send(cell: &Cell<'_>, path: &str) -> Answer {
    let (path, header) = match &cell.caller.elsewhere {
        Some(("query", key)) => (format!("{path}?x-api-key={key}"), None),
        elsewhere => (path.to_owned(), elsewhere.as_ref()),
    };
    let request = cell.caller.api.request(cell.method.clone(), &path).header("content-type", "application/json");
    let request = header.into_iter().fold(request, |request, (name, key)| request.header(*name, key));
    tests::send_request(request.body(cell.body.to_string())).await
}

/// The path of an id that is of no object.
fn missing(path: &'static str, ids: &Ids) -> String {
    let id = ids_of(path, ids).map_or("987654321", |ids| ids[0].as_str());
    filled(path, id)
}

fn filled(path: &str, id: &str) -> String {
    path.replace("{id}", id).replace("{name}", "attacked").replace("{revision}", "1")
}

fn ids_of<'a>(path: &str, ids: &'a Ids) -> Option<&'a [String]> {
    let (before, _) = path.split_once("{id}")?;
    ids.get(before).map(Vec::as_slice)
}

/// Everything in an answer that must not depend on the id: status, headers and body, without the id and the request's own id.
fn comparable(answer: &Answer, id: &str) -> (u16, Vec<String>, String) {
    const OF_THE_REQUEST: [&str; 4] = ["date", "x-request-id", "ratelimit", "retry-after"];
    let mut body = answer.json.clone();
    if let Some(members) = body.as_object_mut() {
        members.retain(|name, _| !matches!(name.as_str(), "request_id" | "instance" | "trace_id"));
    }
    let body = if body.is_null() { answer.text.clone() } else { body.to_string() };
    let headers = answer.headers.iter().filter(|(name, _)| !OF_THE_REQUEST.contains(&name.as_str()));
    // The length follows from the body, which may have a request's own id.
    let headers = headers.filter(|(name, _)| name.as_str() != "content-length");
    let mut headers: Vec<_> = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
    headers.sort_unstable();
    // A short id may be a part of another number.
    let body = if id.len() > 8 { body.replace(id, "{id}") } else { body };
    (answer.status, headers, body)
}

async fn state(s: &Story) -> Vec<String> {
    let mut state = Vec::new();
    for query in STATE {
        state.push(s.table(query).await);
    }
    state
}

/// Creates objects of every kind in the story's team.
async fn attacked_ids(s: &Story) -> Ids {
    let named = |what: &str| json!({"name": format!("{MARKER} {what}"), "description": MARKER});
    let workflow = async |what: &str, more: Value| {
        let mut fields = named(what);
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        s.create_with(fields).await
    };
    let daily = workflow("daily", json!({"cron_schedule": "0 9 * * *"})).await;
    let paused = workflow("paused", json!({"cron_schedule": "0 9 * * *"})).await;
    let archived = workflow("archived", json!({})).await;
    let unscheduled = workflow("unscheduled", json!({"overlap_policy": "concurrent", "max_concurrent": 9})).await;
    s.pause(paused).await;
    s.archive(archived).await;
    let live = crate::ground::fire(s, unscheduled).await.to_string();
    let cancelled = crate::ground::fire(s, unscheduled).await.to_string();
    s.editor().post_empty(&format!("/api/v1/runs/{cancelled}:cancel")).await.expect(200);
    let day = |days| (s.clock.now() - TimeDelta::days(days)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let span = json!({"start": day(3), "end": day(1), "only": "all", "timing": "now"});
    let backfill = s.editor().post(&format!("/api/v1/schedules/{daily}:backfill"), &span).await.expect(202).json;
    let backfill = backfill["id"].as_str().unwrap().to_owned();
    // It is active already, so the job changes nothing.
    let resume = json!({"verb": "resume", "filter": {"workflow_ids": [daily.0]}});
    let bulk = s.editor().post("/api/v1/bulk", &resume).await.expect(202).json["id"].as_str().unwrap().to_owned();
    // Planned for later, so that fires go on.
    let planned = json!({"reason": MARKER, "from": day(-30)});
    let freeze = s.editor().post("/api/v1/freezes", &planned).await.expect(201).json["id"].as_str().unwrap().to_owned();
    let channel = json!({"name": MARKER, "kind": "aws", "target_arn": TOPIC, "default_rules": true});
    let channel = s.editor().post("/api/v1/notification-channels", &channel).await.expect(201).id().to_string();
    s.execute(NOTIFIED).await;
    let ids_of = async |list: &str| {
        let page = s.editor().get(list).await.expect(200).json;
        let ids = page["items"].as_array().unwrap().iter().map(|item| item["id"].clone());
        ids.map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned)).collect::<Vec<_>>()
    };
    let rules = ids_of("/api/v1/notification-rules?limit=2").await;
    let notifications = ids_of("/api/v1/notifications?limit=2").await;
    let messages = ids_of("/api/v1/notification-messages?limit=2").await;
    s.execute(DEAD_LETTERS).await;
    s.execute(SIGNED_IN).await;
    let letters = ids_of("/api/v1/dead-letters?limit=2").await;
    let mut keys = Vec::new();
    for role in ["viewer", "editor"] {
        let body = json!({"name": MARKER, "kind": "team", "team_id": s.keys.team_id, "role": role});
        keys.push(create_key(s, body).await["id"].as_str().unwrap().to_owned());
    }
    let outbox = s.table("SELECT id::text FROM outbox_events ORDER BY id LIMIT 2").await;
    let (number, uuid) = ("987654321".to_owned(), "01890000-0000-7000-8000-000000000000".to_owned());
    let listed = |missing: &String, ids: &[String]| [std::slice::from_ref(missing), ids].concat();
    let workflows = listed(&number, &[daily, paused, archived, unscheduled].map(|id| id.to_string()));
    BTreeMap::from([
        ("/api/v1/teams/", listed(&number, &[s.keys.team_id.to_string()])),
        ("/api/v1/keys/", listed(&uuid, &keys)),
        ("/api/v1/workflows/", workflows.clone()),
        ("/api/v1/schedules/", workflows.clone()),
        ("/api/v1/cron/workflows/", workflows),
        ("/api/v1/runs/", listed(&uuid, &[live, cancelled])),
        ("/api/v1/backfills/", listed(&uuid, &[backfill])),
        ("/api/v1/bulk/", listed(&uuid, &[bulk])),
        ("/api/v1/freezes/", listed(&uuid, &[freeze])),
        ("/api/v1/sessions/", listed(&uuid, &[SESSION.to_owned()])),
        ("/api/v1/dead-letters/", listed(&number, &letters)),
        ("/api/v1/notification-channels/", listed(&number, &[channel])),
        ("/api/v1/notification-rules/", listed(&number, &rules)),
        ("/api/v1/notifications/", listed(&number, &notifications)),
        ("/api/v1/notification-messages/", listed(&uuid, &messages)),
        ("/api/v1/outbox/", listed(&number, &outbox.lines().map(str::to_owned).collect::<Vec<_>>())),
    ])
}

/// Notifications of the attacked team, and a message that was not delivered.
const NOTIFIED: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT id, team_id, event, 'x', cronbox_now(), 'routed' FROM notification_rules;
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on, failed_on)
    SELECT gen_random_uuid(), id, team_id, 'missed', 1, 'failed', cronbox_now(), cronbox_now() FROM notification_channels";

/// The id of the session below.
const SESSION: &str = "0195573e-0000-7000-8000-000000000001";
/// A session of a key.
const SIGNED_IN: &str = "
    INSERT INTO console_sessions (id, digest, key_id, created_on, expires_on)
    SELECT '0195573e-0000-7000-8000-000000000001', '', min(id::text)::uuid, cronbox_now(), cronbox_now() + interval '1 hour' FROM api_keys";

/// Fires of the attacked team that were not delivered.
const DEAD_LETTERS: &str = "
    INSERT INTO dead_letters (queue, message_id, kind, team_id, workflow_id, scheduled_time, error, attributes, body, body_bytes, first_seen, last_seen)
    SELECT 'runner', 'attacked-7f3a ' || id, 'fire', team_id, id, cronbox_now(), 'attacked-7f3a', '{}', 'attacked-7f3a', 13, cronbox_now(), cronbox_now()
      FROM workflows";

/// The rules of the groups of [`people`].
fn group_rules(own: i64, other: i64) -> Value {
    json!([
        {"group": "viewers", "team_id": own, "role": "viewer"},
        {"group": "editors", "team_id": own, "role": "editor"},
        {"group": "other viewers", "team_id": other, "role": "viewer"},
        {"group": "other editors", "team_id": other, "role": "editor"},
        {"group": "admins", "role": "admin"},
    ])
}

/// Every kind of person. No group can make a person an auditor, an operator or the scheduler.
fn people(provider: &IdentityProvider, app: &App, now: DateTime<Utc>) -> Vec<Caller> {
    let member = |name, groups: &[&str], rank| {
        let bearer = provider.bearer(groups, now);
        Caller::person(name, app.anonymous(), bearer, rank)
    };
    let refused = |name, bearer| Caller::person(name, app.anonymous(), bearer, Rank::Nothing);
    let past = now - TimeDelta::days(1);
    let admin = provider.bearer(&["admins"], now);
    let (message, _) = admin.rsplit_once('.').unwrap();
    vec![
        member("person without a group", &[], Rank::NoRole),
        member("person of unknown groups", &["ADMINS", "admins ", "admin", "operators"], Rank::NoRole),
        member("own person, viewer", &["viewers"], Rank::Viewer),
        member("own person, editor", &["viewers", "editors"], Rank::Editor),
        member("other person, viewer", &["other viewers"], Rank::Viewer),
        member("other person, editor", &["other viewers", "other editors"], Rank::Editor),
        member("person, admin", &["viewers", "admins"], Rank::Admin),
        refused("expired person", provider.bearer(&["admins"], past)),
        refused("person of another program", provider.bearer_for("other", &["admins"], now)),
        refused("person without a signature", format!("{message}.")),
    ]
}

/// Every kind of key. The revoked keys were in use at this instance before their revocation.
async fn keys(s: &Story, app: &App, other: i64) -> Vec<Caller> {
    let own = s.keys.team_id;
    let viewer = team_key(s, own, "viewer").await;
    let (other_viewer, other_editor) = (team_key(s, other, "viewer").await, team_key(s, other, "editor").await);
    let refused = |name, key: &str| Caller::new(name, app.api(key), Rank::Nothing);
    let elsewhere = |name, place, key: String| Caller {
        elsewhere: Some((place, key)),
        ..Caller::new(name, app.anonymous(), Rank::Nothing)
    };
    let admin = &s.keys.admin;
    let cookie = format!("x-api-key={admin}");
    let mut callers = vec![
        Caller::new("none", app.anonymous(), Rank::Nothing),
        refused("empty", ""),
        refused("garbage", "let me in"),
        refused("long garbage", &"A".repeat(4_000)),
        refused("another secret with its checksum", &add_checksum(with_end_of(&viewer[..59], &s.keys.editor[..59]))),
        refused("wrong secret", &with_end_of(&viewer, &"A".repeat(viewer.len()))),
        refused("swapped prefix", &with_end_of(admin, &s.keys.editor)),
        refused("swapped secret", &with_end_of(&s.keys.editor, admin)),
        refused("upper case", &admin.to_uppercase()),
        refused("truncated", &admin[..admin.len() - 1]),
        refused("extended", &format!("{admin}A")),
        refused("two keys", &format!("{viewer}, {admin}")),
        elsewhere("key in the query", "query", admin.clone()),
        elsewhere("key in a cookie", "cookie", cookie),
        elsewhere("key as user", "authorization", format!("Basic {admin}")),
        Caller::new("own viewer", app.api(&viewer), Rank::Viewer),
        Caller::new("own editor", app.api(&s.keys.editor), Rank::Editor),
        Caller::new("other viewer", app.api(&other_viewer), Rank::Viewer),
        Caller::new("other editor", app.api(&other_editor), Rank::Editor),
        Caller::new("scheduler", app.api(&s.keys.scheduler), Rank::Scheduler),
        Caller::new("auditor", app.api(&scoped_key(s, "auditor").await), Rank::Auditor),
        Caller::new("operator", app.api(&scoped_key(s, "operate").await), Rank::Operator),
        Caller::new("admin", app.api(admin), Rank::Admin),
    ];
    for (name, body) in [
        ("revoked viewer", json!({"name": "r", "kind": "team", "team_id": own, "role": "viewer"})),
        ("revoked editor", json!({"name": "r", "kind": "team", "team_id": own, "role": "editor"})),
        ("revoked scheduler", json!({"name": "r", "kind": "scheduler"})),
        ("revoked admin", json!({"name": "r", "kind": "admin"})),
    ] {
        let key = create_key(s, body).await;
        let caller = refused(name, key["key"].as_str().unwrap());
        assert_ne!(caller.api.get("/api/v1/workflows").await.status, 401, "{name}: it must be in use first");
        let revoke = format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap());
        app.api(admin).post_empty(&revoke).await.expect(200);
        callers.push(caller);
    }
    callers
}

/// Creates an admin key that has only this scope.
async fn scoped_key(s: &Story, scope: &str) -> String {
    let key = create_key(s, json!({"name": scope, "kind": "admin", "scopes": [scope]})).await;
    key["key"].as_str().unwrap().to_owned()
}

/// The public part of one key with the secret part of another.
fn with_end_of(key: &str, other: &str) -> String {
    // `cba_` and 12 characters of the id.
    let middle = 16;
    let end = other.len() - (key.len() - middle).min(other.len());
    format!("{}{}", &key[..middle], &other[end..])
}

/// Reads every list as the other team, with filters that name the attacked team.
pub(crate) async fn attack_lists() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_EXECUTOR_SLOTS", "0")]).await;
    let ids = attacked_ids(&s).await;
    let other = create_team(&s, "others").await;
    let mut tally = Tally::default();
    let secrets: Vec<&String> =
        ["/api/v1/runs/", "/api/v1/backfills/", "/api/v1/keys/"].iter().flat_map(|path| &ids[path][1..]).collect();
    let workflow = &ids["/api/v1/workflows/"][1];
    let team = s.keys.team_id;
    let filters = [
        String::new(),
        "limit=200".to_owned(),
        format!("workflow_id={workflow}"),
        format!("team_id={team}"),
        format!("q={MARKER}"),
        format!("team_id={team}&team_id={other}"),
        format!("team_id={other}&team_id={team}"),
        format!("team_id={team}&q={MARKER}&state=active"),
    ];
    for role in ["viewer", "editor"] {
        let api = app.api(&team_key(&s, other, role).await);
        for route in ROUTES.iter().filter(|route| route.method == "get" && route.access == Access::Viewer) {
            for filter in filters.iter().filter(|_| !route.path.contains('{')) {
                let answer = api.get(&format!("{}?{filter}", route.path)).await;
                let leaks = answer.text.contains(MARKER) || secrets.iter().any(|id| answer.text.contains(id.as_str()));
                tally.record(!leaks && answer.status < 500, || format!("{role} {}?{filter}: {answer:?}", route.path));
            }
        }
        let theirs = json!({"name": "x", "team_id": team, "action": {"type": "log", "message": "hi"}});
        let created = api.post("/api/v1/workflows", &theirs).await;
        tally.record(matches!(created.status, 400 | 403), || format!("{role} creates in another team: {created:?}"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}
