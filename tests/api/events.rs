//! The events: what has changed, as pages and as a stream that stays open.

use std::time::Instant;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};

const PATH: &str = "/api/v1/events";

/// A stream that is open.
struct Stream {
    response: Response,
    text: String,
}

/// An event of a stream: its name, its id and its data.
type Event = (String, String, Value);

impl Stream {
    async fn open(caller: &Api, last: Option<&str>) -> Self {
        let mut request = caller.request(Method::GET, PATH).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event that is no heartbeat; `None`: the stream has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                let event = (field("event"), field("id"), serde_json::from_str(&field("data")).unwrap_or_default());
                self.text = rest.to_owned();
                if !event.0.is_empty() {
                    return Some(event);
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("no event comes");
            self.text.push_str(std::str::from_utf8(&chunk.ok()??).unwrap());
        }
    }

    async fn begun(&mut self) -> String {
        let (name, id, _) = self.next().await.unwrap();
        assert_eq!(name, "ready");
        id
    }

    /// The next events, each as `kind what`.
    async fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            let (name, _, data) = self.next().await.unwrap();
            lines.push(format!("{name} {}", data["what"].as_str().unwrap()));
        }
        lines
    }
}

async fn page(caller: &Api, cursor: &str) -> Value {
    caller.get(&format!("{PATH}?cursor={cursor}")).await.expect(200).json
}

fn whats(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|event| event["what"].as_str().unwrap()).collect()
}

/// An editor of another team.
async fn stranger(s: &Story) -> Api {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}

/// The runs of the story end at once.
#[tokio::test]
async fn a_stream_says_what_changes_in_its_order() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let stranger = stranger(&s).await;
    assert_eq!(s.count("SELECT count(*) FROM events").await, 0, "nothing is written before a client follows");
    let mut stream = Stream::open(&s.editor(), None).await;
    let begun = stream.begun().await;
    let elsewhere = stranger.get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();

    let wf = s.create("0 9 * * *", "UTC").await;
    assert_eq!(stream.lines(1).await, ["edit create"]);
    s.publish().await;
    assert_eq!(stream.lines(1).await, ["sync synced"]);
    s.clock_to("2026-03-02T09:00:30Z").await;
    assert_eq!(stream.lines(1).await, ["decision fired"]);
    let (name, id, data) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &data["what"], &data["workflow_id"]), ("run_end", &json!("succeeded"), &json!(wf.0)));
    assert_eq!((&data["id"], &data["scheduled_time"]), (&json!(id), &json!("2026-03-02T09:00:00Z")));

    let same = page(&s.editor(), &begun).await;
    assert_eq!(whats(&same), ["create", "synced", "fired", "succeeded"], "a page has the same");
    let first = &same["items"][0];
    assert_eq!((&first["subject"], &first["team_id"]), (&json!(format!("workflow:{wf}")), &json!(s.keys.team_id)));
    assert_eq!(whats(&page(&s.editor(), same["items"][1]["id"].as_str().unwrap()).await), ["fired", "succeeded"]);
    assert_eq!(whats(&page(&stranger, &elsewhere).await), Vec::<&str>::new(), "another team");
    s.end().await;
}

#[tokio::test]
async fn a_stream_continues_after_its_last_event() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let mut stream = Stream::open(&s.editor(), None).await;
    stream.begun().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let (_, last, _) = stream.next().await.unwrap();
    drop(stream);
    s.edit(wf, json!({"cron_schedule": "0 10 * * *"})).await;
    let mut stream = Stream::open(&s.editor(), Some(&last)).await;
    assert_eq!(stream.begun().await, last);
    assert_eq!(stream.lines(1).await, ["edit update"]);
    // Some of the events after it are not kept any more.
    s.execute("UPDATE event_listeners SET complete_from = complete_from + 1000000").await;
    let (name, _, _) = Stream::open(&s.editor(), Some(&last)).await.next().await.unwrap();
    assert_eq!(name, "reset", "the client has to read its lists again");
    let refused = s.editor().get(&format!("{PATH}?cursor={last}")).await;
    assert_eq!((refused.status, &refused.json["code"]), (400, &json!("invalid_cursor")));
    s.publish().await;
    s.end().await;
}

/// A transaction that began earlier commits later: its event has a lower place.
#[tokio::test]
async fn no_event_of_an_older_open_transaction_is_skipped() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let cursor = s.admin().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    let mut older = db::begin_transaction(&s.pool).await.unwrap();
    let insert = "INSERT INTO events (kind, what) VALUES ('edit', 'older')";
    sqlx::query(insert).execute(&mut *older).await.unwrap();
    s.create("0 9 * * *", "UTC").await;
    let before = page(&s.admin(), &cursor).await;
    assert_eq!(whats(&before), Vec::<&str>::new(), "the newer event waits for the older transaction");
    older.commit().await.unwrap();
    // A transaction of another database of the server, as those of other tests, is older perhaps: the events wait for it, too.
    let (mut seen, mut cursor, began) = (Vec::new(), before["next_cursor"].clone(), Instant::now());
    while seen.len() < 2 && began.elapsed() < PATIENCE {
        let after = page(&s.admin(), cursor.as_str().unwrap()).await;
        seen.extend(whats(&after).into_iter().map(str::to_owned));
        cursor = after["next_cursor"].clone();
    }
    assert_eq!(seen, ["older", "create"]);
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn streams_of_a_key_are_limited_and_end_with_it() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let body = json!({"name": "console", "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let viewer = Api::new(s.url(), key["key"].as_str().unwrap());
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(Stream::open(&viewer, None).await);
    }
    let sixth = viewer.request(Method::GET, PATH).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(sixth.status(), 429);
    assert_eq!(sixth.json::<Value>().await.unwrap()["code"], "limit_streams");
    viewer.get("/api/v1/me").await.expect(200);
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap())).await.expect(200);
    for stream in &mut streams {
        stream.begun().await;
        assert_eq!(stream.lines(1).await, ["edit revoke"]);
        assert_eq!(stream.next().await, None, "the key is revoked");
    }
    s.end().await;
}

#[tokio::test]
async fn old_events_are_removed_and_refused() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let cursor = s.editor().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    s.create("0 9 * * *", "UTC").await;
    s.execute("UPDATE events SET created_on = created_on - interval '2 hours'").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM events").await, 0);
    assert_eq!(s.editor().get(&format!("{PATH}?cursor={cursor}")).await.json["code"], "invalid_cursor");
    // The last one is of a database that had more transactions: this one was restored since.
    for cursor in ["x", "1", "-1.0", "1.x", "999999999999.0"] {
        assert_eq!(s.editor().get(&format!("{PATH}?cursor={cursor}")).await.json["field"], "cursor", "{cursor}");
    }
    // No client has followed for an hour: changes write no events again.
    s.execute("UPDATE event_listeners SET live_until = clock_timestamp()").await;
    s.create("0 9 * * *", "UTC").await;
    assert_eq!(s.count("SELECT count(*) FROM events").await, 0);
    s.publish().await;
    s.end().await;
}
