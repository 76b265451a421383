//! The events: what has changed, as pages and as a stream that stays open.

use std::time::Instant;

use app::jobs::Did;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};
use workflows::events::{Kept, Position, read_events};

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
    // An event is read when all older transactions of the server have ended, those of other tests, too. Until then, a stream may
    // end because its key is revoked.
    for mut stream in streams {
        stream.begun().await;
        let rest = async {
            while let Some((name, _, data)) = stream.next().await {
                assert_eq!((name.as_str(), &data["what"]), ("edit", &json!("revoke")));
            }
        };
        tokio::time::timeout(PATIENCE, rest).await.expect("the key is revoked");
    }
    s.end().await;
}

#[tokio::test]
async fn old_events_are_removed_and_refused() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let cursor = s.editor().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    s.create("0 9 * * *", "UTC").await;
    s.execute("UPDATE events SET created_on = created_on - interval '2 hours'").await;
    s.job("events").await;
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

/// Between the look of a reader whether they are complete, and its read.
#[tokio::test]
async fn a_read_passes_over_no_removed_event() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let begun = s.editor().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    let after = begun.parse::<Position>().unwrap();
    assert_eq!(read_events(&s.pool, after, None, 9).await.unwrap().kept, Kept::Complete);
    s.create("0 9 * * *", "UTC").await;
    s.execute("UPDATE events SET created_on = created_on - interval '2 hours'").await;
    s.job("events").await;
    let read = read_events(&s.pool, after, None, 9).await.unwrap();
    assert_eq!((read.kept, read.through), (Kept::Incomplete, after));
    s.publish().await;
    s.end().await;
}

/// A third of more than one removal takes.
const OLD: &str = "INSERT INTO events (kind, what, created_on)
    SELECT 'edit', 'old', clock_timestamp() - interval '2 hours' FROM generate_series(1, 70000)";

/// A client that reads pages follows, and opens no stream.
#[tokio::test]
async fn a_job_removes_old_events_until_none_is_left() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let cursor = s.editor().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    // In short transactions, because the clients of other stories wait for those that are open.
    for _ in 0..3 {
        s.execute(OLD).await;
    }
    s.create("0 9 * * *", "UTC").await;
    // A turn removes all of them, unless it takes half a minute.
    while let Did::Some(_) = s.job("events").await {}
    assert_eq!(s.count("SELECT count(*) FROM events").await, 1, "the edit is young");
    let refused = s.editor().get(&format!("{PATH}?cursor={cursor}")).await;
    assert_eq!(refused.json["code"], "invalid_cursor", "some of the events after it are removed");
    assert_eq!(s.job("events").await, Did::Nothing);
    s.publish().await;
    s.end().await;
}

const OF_OTHERS: &str = "INSERT INTO events (kind, what, team_id)
    SELECT 'run_end', 'succeeded', 1000 + nth % 500 FROM generate_series(1, 100000) AS nth";
/// How many rows and index entries of the table were read.
const READ: &str = "SELECT (COALESCE(t.seq_tup_read, 0) + COALESCE(sum(i.idx_tup_read), 0))::bigint
      FROM pg_stat_user_tables t LEFT JOIN pg_stat_user_indexes i USING (relid)
     WHERE t.relname = 'events' GROUP BY t.seq_tup_read";

/// Forty streams of one team. In the order of all events each would pass over those of all teams.
#[tokio::test]
async fn streams_read_no_event_of_another_team() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let mut viewers = Vec::new();
    for nth in 0..8 {
        let body =
            json!({"name": format!("viewer {nth}"), "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
        let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
        viewers.push(Api::new(s.url(), key["key"].as_str().unwrap()));
    }
    let (mut streams, mut begun) = (Vec::new(), String::new());
    for viewer in viewers.iter().cycle().take(40) {
        let mut stream = Stream::open(viewer, None).await;
        begun = stream.begun().await;
        streams.push(stream);
    }
    let before = s.count(READ).await;
    s.execute_long(OF_OTHERS).await;
    s.create("0 9 * * *", "UTC").await;
    for stream in &mut streams {
        assert_eq!(stream.lines(1).await, ["edit create"]);
    }
    let read = s.count(READ).await - before;
    assert!(read < 10_000, "{read} events and index entries");
    assert_eq!(whats(&page(&viewers[0], &begun).await), ["create"], "nor does a page");
    s.publish().await;
    s.end().await;
}

/// Those of the teams 1001 and 2000 are 1, 3, 4, 6, 7, 9 and 10.
const OF_THREE_TEAMS: &str = "INSERT INTO events (kind, what, team_id)
    SELECT 'edit', nth::text, CASE nth % 3 WHEN 0 THEN 2000 ELSE 1000 + nth % 3 END FROM generate_series(1, 10) AS nth";

/// A person of several teams reads them so, and continues where a page was cut.
#[tokio::test]
async fn events_of_several_teams_have_one_order() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let begun = s.editor().get(PATH).await.expect(200).json["next_cursor"].as_str().unwrap().to_owned();
    s.execute(OF_THREE_TEAMS).await;
    let (mut seen, mut after, began) = (Vec::new(), begun.parse::<Position>().unwrap(), Instant::now());
    // A transaction of another test is older perhaps: the events wait for it.
    while seen.len() < 7 && began.elapsed() < PATIENCE {
        let read = read_events(&s.pool, after, Some(&[2000, 1001]), 3).await.unwrap();
        assert!(read.events.len() <= 3, "{:?}", read.events);
        assert_eq!(read.may_be_more, read.events.len() == 3);
        seen.extend(read.events.into_iter().map(|event| event.what));
        after = read.through;
    }
    assert_eq!(seen, ["1", "3", "4", "6", "7", "9", "10"]);
    s.end().await;
}
