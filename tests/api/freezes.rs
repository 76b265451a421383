//! The API of freezes: who may freeze what, and what a list shows.

use serde_json::{Value, json};
use tests::{Api, Story};

const PATH: &str = "/api/v1/freezes";

async fn key(s: &Story, role: &str, team: i64) -> Api {
    let body = json!({"name": role, "kind": "team", "team_id": team, "role": role});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}

async fn reasons(caller: &Api, query: &str) -> Vec<String> {
    let list = caller.get(&format!("{PATH}{query}")).await.expect(200).json;
    let reason =
        |freeze: &Value| format!("{} {}", freeze["reason"].as_str().unwrap(), freeze["state"].as_str().unwrap());
    list["items"].as_array().unwrap().iter().map(reason).collect()
}

#[tokio::test]
async fn a_team_freezes_itself_and_an_admin_everybody() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let (viewer, stranger) = (key(&s, "viewer", team).await, key(&s, "editor", team).await);
    let own = s.editor().post(PATH, &json!({"reason": "ours", "until": "2026-03-02T09:00:00Z"})).await.expect(201);
    let path = own.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(own.json["team_id"], s.keys.team_id);
    assert_eq!(stranger.get(&path).await.status, 404);
    assert_eq!(stranger.post_empty(&format!("{path}:lift")).await.status, 404);
    assert_eq!(viewer.post(PATH, &json!({"reason": "r"})).await.json["code"], "forbidden");
    assert_eq!(stranger.post(PATH, &json!({"reason": "r", "all_teams": true})).await.json["code"], "forbidden");
    assert_eq!(
        s.admin().post(PATH, &json!({"reason": "r"})).await.json["code"],
        "missing_field",
        "never all by accident"
    );
    let later = json!({"reason": "everybody", "all_teams": true, "from": "2026-03-02T10:00:00Z"});
    let all = s.admin().post(PATH, &later).await.expect(201);
    s.admin().post(PATH, &json!({"reason": "theirs", "team_id": team})).await.expect(201);

    assert_eq!(reasons(&s.editor(), "").await, ["everybody planned", "ours in_force"]);
    assert_eq!(reasons(&stranger, "").await, ["theirs in_force", "everybody planned"]);
    assert_eq!(reasons(&s.admin(), "").await.len(), 3);
    assert_eq!(reasons(&s.admin(), &format!("?team_id={team}")).await, ["theirs in_force", "everybody planned"]);
    s.now_is("2026-03-02T09:00:00Z").await;
    assert_eq!(reasons(&s.editor(), "").await, ["everybody planned", "ours ended"]);
    assert_eq!(reasons(&s.editor(), "?open=true").await, ["everybody planned"]);
    assert_eq!(s.editor().post_empty(&format!("{path}:lift")).await.json["code"], "freeze_ended");
    let lifted =
        s.admin().post_empty(&format!("{}:lift", all.headers["location"].to_str().unwrap())).await.expect(200).json;
    assert_eq!((&lifted["state"], &lifted["until"]), (&json!("ended"), &lifted["from"]), "it never begins");
    assert_eq!(reasons(&s.editor(), "?open=true").await, Vec::<String>::new());
    let audited = "SELECT string_agg(verb || ' ' || COALESCE(team_id::text, 'all'), ', ' ORDER BY id) FROM audit_log
                    WHERE subject LIKE 'freeze:%'";
    let expected = format!("freeze {}, freeze all, freeze {team}, lift all", own.json["team_id"]);
    assert_eq!(s.table(audited).await, expected);
    s.end().await;
}

#[tokio::test]
async fn a_freeze_that_cannot_be_meant_is_refused() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    for (body, field) in [
        (json!({}), "reason"),
        (json!({"reason": ""}), "reason"),
        (json!({"reason": "r".repeat(501)}), "reason"),
        (json!({"reason": "r", "from": "2026-03-02T07:59:59Z"}), "from"),
        (json!({"reason": "r", "until": "2026-03-02T08:00:00Z"}), "until"),
        (json!({"reason": "r", "from": "2026-03-02T09:00:00Z", "until": "2026-03-02T09:00:00Z"}), "until"),
        (json!({"reason": "r", "team": 1}), "team"),
    ] {
        let refused = s.editor().post(PATH, &body).await;
        assert_eq!((refused.status, &refused.json["field"]), (400, &json!(field)), "{body}");
    }
    let both = s.admin().post(PATH, &json!({"reason": "r", "team_id": 1, "all_teams": true})).await;
    assert_eq!(both.json["field"], "team_id");
    for nth in 0..10 {
        s.editor().post(PATH, &json!({"reason": nth.to_string()})).await.expect(201);
    }
    assert_eq!(s.editor().post(PATH, &json!({"reason": "r"})).await.json["code"], "too_many_freezes");
    assert_eq!(s.count("SELECT count(*) FROM freezes").await, 10);
    s.end().await;
}
