//! People who sign in with a provider: which tokens open the API, what groups permit, and what a bad provider can do.

mod provider;

use std::path::PathBuf;

use access::people::token::Claims;
use access::sessions::{MOST_OF_A_HOLDER, SignIn, begin_session};
use app::config::Oidc;
use app::identity_provider::IdentityProvider;
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Answer, Api, Story, Visitor, send_request};
use workflows::audit::Edit;

use provider::{Answers, Pair, Provider, encode, jwks, message_of, token_by_secret};

const NOW: &str = "2026-03-02T12:00:00Z";

fn now() -> i64 {
    NOW.parse::<DateTime<Utc>>().unwrap().timestamp()
}

/// A story with an app that knows the provider, and two teams.
struct Signed {
    s: Story,
    url: String,
    other: i64,
    groups_file: PathBuf,
}

impl Signed {
    async fn with(provider: &Provider) -> Self {
        Self::with_limits(provider, |_| {}).await
    }

    async fn with_limits(provider: &Provider, change: fn(&mut app::Config)) -> Self {
        let mut s = Story::at(NOW).await;
        let other = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
        let mut rules = json!({"groups": [
            {"group": "devs", "team_id": s.keys.team_id, "role": "editor"},
            {"group": "readers", "team_id": s.keys.team_id, "role": "viewer"},
            {"group": "others", "team": "others", "role": "editor"},
            {"group": "other readers", "team": "others", "role": "viewer"},
            {"group": "ghosts", "team": "no such team", "role": "editor"},
            {"group": "ops", "role": "admin"},
            {"group": "many", "team_id": s.keys.team_id, "role": "editor"},
        ]});
        let team = |nth: usize| json!({"group": "many", "team": format!("many {nth}"), "role": "editor"});
        rules["groups"].as_array_mut().unwrap().extend((1..=20).map(team));
        let groups_file = std::env::temp_dir().join(format!("cronbox-groups-{}.json", uuid::Uuid::new_v4()));
        std::fs::write(&groups_file, rules.to_string()).unwrap();
        let (issuer, file) = (provider.issuer().to_owned(), groups_file.clone());
        let url = s.another_app_with(|config| {
            config.oidc.oidc_issuer = Some(issuer);
            config.oidc.oidc_audience = Some("cronbox".to_owned());
            config.oidc.oidc_groups_file = Some(file);
            change(config);
        });
        let url = url.await.unwrap();
        Self { s, url, other, groups_file }
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: Option<&Value>) -> Answer {
        let request =
            Api::without_key(&self.url).request(method, path).header("authorization", format!("Bearer {token}"));
        send_request(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, token, None).await
    }

    async fn end(self) {
        std::fs::remove_file(&self.groups_file).unwrap();
        self.s.end_early().await;
    }
}

fn workflow(name: &str, team_id: Option<i64>) -> Value {
    let mut body = json!({"name": name, "action": {"type": "log", "message": "hi"}});
    if let Some(team_id) = team_id {
        body["team_id"] = json!(team_id);
    }
    body
}

#[tokio::test]
async fn tokens_of_each_algorithm_open_the_api() {
    let (rsa, p256, ed) = (Pair::rsa(), Pair::p256(), Pair::ed());
    let provider = Provider::with_keys(&[("r", &rsa), ("p", &p256), ("e", &ed)]).await;
    let people = Signed::with(&provider).await;
    for (kid, pair) in [("r", &rsa), ("p", &p256), ("e", &ed)] {
        let token = pair.token(kid, &provider.claims("ann", &["devs"], now()));
        people.get("/api/v1/workflows", &token).await.expect(200);
        let unnamed = pair.token_of(&json!({"alg": pair.alg()}), &provider.claims("bob", &["devs"], now()));
        people.get("/api/v1/workflows", &unnamed).await.expect(200);
    }
    assert_eq!(provider.fetches(), 1, "the keys are cached");
    // The story's own app has no provider, and a key opens the app that has one.
    let token = rsa.token("r", &provider.claims("ann", &["devs"], now()));
    let elsewhere = Api::without_key(people.s.url()).request(Method::GET, "/api/v1/workflows").bearer_auth(&token);
    send_request(elsewhere).await.refused(401, "unauthorized", None);
    Api::new(&people.url, &people.s.keys.editor).get("/api/v1/workflows").await.expect(200);
    let both =
        Api::new(&people.url, &people.s.keys.editor).request(Method::GET, "/api/v1/workflows").bearer_auth(&token);
    send_request(both).await.refused(400, "several_credentials", None);
    people.end().await;
}

/// Each of these would let in a person who may not be, and each is answered alike.
#[tokio::test]
async fn forged_tokens_open_nothing() {
    let (rsa, p256, ed, stranger) = (Pair::rsa(), Pair::p256(), Pair::ed(), Pair::rsa());
    let provider =
        Provider::with_keys(&[("r", &rsa), ("p", &p256), ("e", &ed), ("twice", &rsa), ("twice", &stranger)]).await;
    let people = Signed::with(&provider).await;
    let good = provider.claims("eve", &["ops"], now());
    people.get("/api/v1/keys", &rsa.token("r", &good)).await.expect(200);
    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        rsa.token("r", &claims)
    };
    let header = |alg: &str| json!({"alg": alg, "kid": "r", "typ": "JWT"});
    let mut tries: Vec<(&str, String)> = vec![
        ("none", format!("{}.", message_of(&header("none"), &good.to_string()))),
        ("None", format!("{}.", message_of(&header("None"), &good.to_string()))),
        ("none, signed", rsa.token_of(&header("none"), &good)),
        ("HS256 by the public key", token_by_secret(&header("HS256"), &good, &rsa.public_bytes())),
        ("HS256 by an empty secret", token_by_secret(&header("HS256"), &good, b"")),
        ("HS256 named RS256", token_by_secret(&header("RS256"), &good, &rsa.public_bytes())),
        ("RS512", rsa.token_of(&header("RS512"), &good)),
        ("the key of another algorithm", rsa.token_of(&json!({"alg": "ES256", "kid": "p"}), &good)),
        ("the kid of another algorithm", ed.token_of(&json!({"alg": "EdDSA", "kid": "r"}), &good)),
        ("another key", stranger.token("r", &good)),
        ("a key in the header", {
            let jwk = jwks(&[("r", &stranger)])["keys"][0].clone();
            stranger.token_of(&json!({"alg": "RS256", "kid": "r", "jwk": jwk}), &good)
        }),
        ("keys at another address", {
            let jku = format!("{}/redirected", provider.issuer());
            stranger.token_of(&json!({"alg": "RS256", "kid": "r", "jku": jku, "x5u": jku}), &good)
        }),
        ("a repeated kid", rsa.token("twice", &good)),
        ("an unknown kid", rsa.token("unknown", &good)),
        ("a kid with a path", rsa.token("../../r", &good)),
        ("critical header", rsa.token_of(&json!({"alg": "RS256", "kid": "r", "crit": ["b64"], "b64": false}), &good)),
        ("a logout token", rsa.token_of(&json!({"alg": "RS256", "kid": "r", "typ": "logout+jwt"}), &good)),
        ("a prefix of the issuer", with("iss", json!(format!("{}/", provider.issuer())))),
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("several issuers", with("iss", json!([provider.issuer()]))),
        ("no issuer", with("iss", Value::Null)),
        ("another audience", with("aud", json!("cronbox-admin"))),
        ("other audiences", with("aud", json!(["a", "b"]))),
        ("no audience", with("aud", Value::Null)),
        ("expired", with("exp", json!(now() - 60))),
        ("no end", with("exp", Value::Null)),
        ("an end as a text", with("exp", json!((now() + 300).to_string()))),
        ("an endless end", with("exp", json!(1e300))),
        ("not yet valid", with("nbf", json!(now() + 61))),
        ("issued in the future", with("iat", json!(now() + 61))),
        ("no subject", with("sub", Value::Null)),
        ("an empty subject", with("sub", json!(""))),
        ("a subject with a line", with("sub", json!("a\nb"))),
        ("a subject as a number", with("sub", json!(7))),
        ("bound to a key", with("cnf", json!({"jkt": "abc"}))),
        ("empty", String::new()),
        ("a key of ours", people.s.keys.admin.clone()),
        ("deep", format!("{}.{}.x", encode(b"{\"alg\":\"RS256\"}"), encode("[".repeat(8_000).as_bytes()))),
    ];
    let token = rsa.token("r", &good);
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (head, payload) = message.split_once('.').unwrap();
    let raised = encode(good.to_string().replace("eve", "root").as_bytes());
    tries.extend([
        ("no signature", format!("{message}.")),
        ("two parts", message.to_owned()),
        ("four parts", format!("{token}.x")),
        ("other claims", format!("{head}.{raised}.{signature}")),
        ("half a signature", format!("{message}.{}", &signature[..100])),
        ("a longer signature", format!("{message}.{signature}AA")),
        ("padding", format!("{token}==")),
        ("an encrypted token", format!("{head}.{payload}.{signature}.{signature}.{signature}")),
        ("repeated claims", {
            let twice = good.to_string().replacen('{', "{\"sub\":\"root\",", 1);
            let message = message_of(&header("RS256"), &twice);
            format!("{message}.{signature}")
        }),
        (
            "P-256 in DER",
            format!("{}.{}", message_of(&json!({"alg": "ES256", "kid": "p"}), &good.to_string()), encode(&[0x30; 70])),
        ),
        (
            "zeros for P-256",
            format!("{}.{}", message_of(&json!({"alg": "ES256", "kid": "p"}), &good.to_string()), encode(&[0; 64])),
        ),
        (
            "zeros for Ed25519",
            format!("{}.{}", message_of(&json!({"alg": "EdDSA", "kid": "e"}), &good.to_string()), encode(&[0; 64])),
        ),
    ]);
    for nth in 0..40 {
        let mut bytes = token.clone().into_bytes();
        let at = nth * bytes.len() / 40;
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        tries.push(("a changed character", String::from_utf8(bytes).unwrap()));
    }
    let mut said = std::collections::BTreeSet::new();
    let mut through = Vec::new();
    for (what, token) in &tries {
        let answer = people.get("/api/v1/keys", token).await;
        if answer.status != 401 {
            through.push((what, answer.clone()));
        }
        assert_eq!(answer.headers["www-authenticate"], "Bearer error=\"invalid_token\"", "{what}");
        said.insert(format!("{} {}", answer.json["code"], answer.json["detail"]));
    }
    println!("{} tries, {} through", tries.len(), through.len());
    assert!(through.is_empty(), "{through:?}");
    assert_eq!(said.len(), 1, "the answers say why: {said:?}");
    assert_eq!(provider.redirected(), 0, "an address in a token was called");
    people.end().await;
}

#[tokio::test]
async fn groups_permit_what_they_say() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let token = |groups: &[&str]| pair.token("e", &provider.claims("ann", groups, now()));
    let create = async |groups: &[&str], name: &str| {
        people.send(Method::POST, "/api/v1/workflows", &token(groups), Some(&workflow(name, None))).await
    };
    // A person without a role, whatever the groups are called.
    for groups in [&[][..], &["unknown"], &["DEVS"], &["devs "], &["ghosts"], &["admin"]] {
        people.get("/api/v1/workflows", &token(groups)).await.refused(403, "forbidden", None);
    }
    let mut none = provider.claims("ann", &[], now());
    for value in [json!({"devs": true}), json!(7), json!([["devs"]]), Value::Null] {
        none["groups"] = value;
        people.get("/api/v1/workflows", &pair.token("e", &none)).await.refused(403, "forbidden", None);
    }
    none["groups"] = json!("devs");
    people.get("/api/v1/workflows", &pair.token("e", &none)).await.expect(200);

    let made = create(&["devs"], "a").await.expect(201).id();
    create(&["readers"], "b").await.refused(403, "forbidden", None);
    create(&["devs", "readers"], "b").await.expect(201);
    let path = format!("/api/v1/workflows/{made}");
    people.get(&path, &token(&["readers"])).await.expect(200);
    people.get(&path, &token(&["others"])).await.refused(404, "not_found", None);
    let patch = json!({"description": "c"});
    people.send(Method::PATCH, &path, &token(&["others"]), Some(&patch)).await.refused(404, "not_found", None);
    people.send(Method::PATCH, &path, &token(&["readers"]), Some(&patch)).await.refused(403, "forbidden", None);
    people.send(Method::DELETE, &path, &token(&["devs"]), None).await.refused(403, "forbidden", None);
    people.get("/api/v1/keys", &token(&["devs"])).await.refused(403, "forbidden", None);
    people.get("/api/v1/keys", &token(&["devs", "ops"])).await.expect(200);
    let rotate = json!({"overlap_secs": 60});
    people.send(Method::POST, "/api/v1/keys/self:rotate", &token(&["ops"]), Some(&rotate)).await.refused(
        403,
        "forbidden",
        None,
    );
    let fire = "/api/v1/cron/workflows/1:invoke";
    people.send(Method::POST, fire, &token(&["ops"]), Some(&json!({}))).await.refused(403, "forbidden", None);
    people.send(Method::DELETE, &path, &token(&["ops"]), None).await.expect(204);
    people.end().await;
}

/// An editor of one team and a viewer of another one: each object has the role of its team.
#[tokio::test]
async fn persons_of_two_teams_act_team_by_team() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let own = people.s.keys.team_id;
    let token = |groups: &[&str]| pair.token("e", &provider.claims("ann", groups, now()));
    let admin = token(&["ops"]);
    let mut made = Vec::new();
    for (nth, team) in [own, people.other, own, people.other, own].into_iter().enumerate() {
        let body = workflow(&format!("w{nth}"), Some(team));
        made.push(people.send(Method::POST, "/api/v1/workflows", &admin, Some(&body)).await.expect(201).id());
    }
    let third = people.s.admin().post("/api/v1/teams", &json!({"name": "third"})).await.expect(201).id();
    let body = workflow("foreign", Some(third));
    let foreign = people.send(Method::POST, "/api/v1/workflows", &admin, Some(&body)).await.expect(201).id();
    // Each order of the teams: whichever the caller acts in by default.
    for (groups, writable, readable) in
        [(["devs", "other readers"], own, people.other), (["readers", "others"], people.other, own)]
    {
        let both = token(&groups);
        for (nth, id) in made.iter().enumerate() {
            let path = format!("/api/v1/workflows/{id}");
            people.get(&path, &both).await.expect(200);
            let is_writable = (nth % 2 == 0) == (writable == own);
            let body = json!({"description": format!("{nth} {writable}")});
            let answer = people.send(Method::PATCH, &path, &both, Some(&body)).await;
            if is_writable {
                drop(answer.expect(200));
            } else {
                answer.refused(403, "forbidden", None);
            }
            let encoded = format!("/api/v1/workflows/%{:02x}{}", id.to_string().as_bytes()[0], &id.to_string()[1..]);
            let answer = people.send(Method::PATCH, &encoded, &both, Some(&body)).await;
            assert_eq!(answer.status, if is_writable { 200 } else { 403 }, "{answer:?}");
        }
        for path in [
            format!("/api/v1/workflows/{foreign}"),
            "/api/v1/workflows/999999".to_owned(),
            format!("/api/v1/schedules/{foreign}/runs"),
            format!("/api/v1/teams/{third}/limits"),
            format!("/api/v1/stats?team_id={third}"),
            format!("/api/v1/stats?workflow_id={foreign}"),
        ] {
            people.get(&path, &both).await.refused(404, "not_found", None);
        }
        let fire = async |id: i64| {
            people.send(Method::POST, &format!("/api/v1/schedules/{id}:fire"), &both, Some(&json!({}))).await
        };
        let (first, second) = if writable == own { (made[0], made[1]) } else { (made[1], made[0]) };
        let run = fire(first).await.expect(202).json["run_id"].as_str().unwrap().to_owned();
        fire(second).await.refused(403, "forbidden", None);
        fire(foreign).await.refused(404, "not_found", None);
        people.get(&format!("/api/v1/runs/{run}"), &both).await.expect(200);
        people
            .get(&format!("/api/v1/runs/{run}"), &token(&[if writable == own { "others" } else { "devs" }]))
            .await
            .refused(404, "not_found", None);
        // A new workflow names its team.
        let create = async |name: &str, team| {
            people.send(Method::POST, "/api/v1/workflows", &both, Some(&workflow(name, team))).await
        };
        create("x", None).await.refused(400, "missing_field", Some("team_id"));
        create("x", Some(readable)).await.refused(403, "forbidden", None);
        create("x", Some(third)).await.refused(400, "unknown_team", Some("team_id"));
        let id = create("x", Some(writable)).await.expect(201).id();
        people.send(Method::POST, &format!("/api/v1/workflows/{id}:archive"), &both, None).await.expect(200);
        people.send(Method::DELETE, &format!("/api/v1/workflows/{id}"), &admin, None).await.expect(204);
        for team in [own, people.other] {
            people.get(&format!("/api/v1/teams/{team}/limits"), &both).await.expect(200);
            people.get(&format!("/api/v1/stats?team_id={team}"), &both).await.expect(200);
        }
        people.get("/api/v1/stats", &both).await.refused(400, "missing_field", Some("team_id"));
        for path in ["/api/v1/audit", "/api/v1/audit:export"] {
            people.get(path, &both).await.refused(400, "missing_field", Some("team_id"));
            people.get(&format!("{path}?team_id={}", people.other), &both).await.expect(200);
        }
        people.get(&format!("/api/v1/stats?workflow_id={}", made[1]), &both).await.expect(200);
        // A list has the rows of both teams in one order, on pages of any size.
        for limit in [1, 2, 3, 200] {
            assert_eq!(ids_of_list(&people, &format!("/api/v1/workflows?limit={limit}"), &both).await, made, "{limit}");
        }
        let of_other = format!("/api/v1/workflows?limit=200&team_id={}", people.other);
        assert_eq!(ids_of_list(&people, &of_other, &both).await, [made[1], made[3]]);
        let of_third = format!("/api/v1/workflows?limit=200&team_id={third}");
        assert!(ids_of_list(&people, &of_third, &both).await.is_empty());
        assert!(ids_of_list(&people, &format!("/api/v1/runs?limit=1&team_id={third}"), &both).await.is_empty());
        for list in ["runs", "backfills", "schedules"] {
            people.get(&format!("/api/v1/{list}?limit=1"), &both).await.expect(200);
        }
    }
    let all = ids_of_list(&people, "/api/v1/runs?limit=1", &token(&["devs", "others"])).await;
    assert_eq!(all.len(), 2, "a run of each team: {all:?}");
    assert_eq!(ids_of_list(&people, "/api/v1/runs?limit=1", &token(&["others"])).await.len(), 1);
    people.end().await;
}

/// In a list of two teams, only the URLs of the team in which the person may write are complete.
#[tokio::test]
async fn lists_show_what_the_role_permits() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let own = people.s.keys.team_id;
    let token = |groups: &[&str]| pair.token("e", &provider.claims("ann", groups, now()));
    for (nth, team) in [own, people.other].into_iter().enumerate() {
        let mut body = workflow(&format!("w{nth}"), Some(team));
        body["action"] = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/hook/secret"});
        people.send(Method::POST, "/api/v1/workflows", &token(&["ops"]), Some(&body)).await.expect(201);
    }
    let urls = async |groups: &[&str]| {
        let page = people.get("/api/v1/workflows", &token(groups)).await.expect(200).json;
        let urls =
            page["items"].as_array().unwrap().iter().map(|item| item["action"]["url"].as_str().unwrap().to_owned());
        urls.collect::<Vec<_>>()
    };
    let (complete, origin) = ("http://127.0.0.1:8009/hook/secret", "http://127.0.0.1:8009");
    assert_eq!(urls(&["devs", "others"]).await, [complete, complete]);
    assert_eq!(urls(&["devs", "other readers"]).await, [complete, origin]);
    assert_eq!(urls(&["readers", "others"]).await, [origin, complete]);
    assert_eq!(urls(&["readers", "other readers"]).await, [origin, origin]);
    people.end().await;
}

/// The `id` of each item on all pages; that of a run is its workflow's.
async fn ids_of_list(people: &Signed, path: &str, token: &str) -> Vec<i64> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = people.get(&format!("{path}{cursor}"), token).await.expect(200).json;
        let items = page["items"].as_array().unwrap();
        ids.extend(items.iter().map(|item| item["id"].as_i64().or(item["workflow_id"].as_i64()).unwrap()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn the_audit_log_names_the_person() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let mut claims = provider.claims("1", &["devs"], now());
    claims["email"] = json!("ann@example.com (x)");
    for (name, subject) in [("a", "1"), ("b", "2")] {
        claims["sub"] = json!(subject);
        let token = pair.token("e", &claims);
        people.send(Method::POST, "/api/v1/workflows", &token, Some(&workflow(name, None))).await.expect(201);
    }
    let actors = people.s.table("SELECT actor FROM audit_log WHERE actor LIKE 'person:%' ORDER BY id").await;
    let expected = |subject| format!("person:ann@example.com__x_ ({} {subject})", provider.issuer());
    assert_eq!(actors, [expected(1), expected(2)].join("\n"), "two persons of the same name");
    people.end().await;
}

/// A token that was used a moment ago ends at its time, too.
#[tokio::test]
async fn tokens_end_on_time() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let token = pair.token("e", &provider.claims("ann", &["devs"], now()));
    people.get("/api/v1/workflows", &token).await.expect(200);
    let at = |secs: i64| (NOW.parse::<DateTime<Utc>>().unwrap() + TimeDelta::seconds(secs)).to_rfc3339();
    people.s.now_is(&at(359)).await;
    people.get("/api/v1/workflows", &token).await.expect(200);
    people.s.now_is(&at(360)).await;
    people.get("/api/v1/workflows", &token).await.refused(401, "unauthorized", None);
    people.end().await;
}

/// A new key is fetched when a token names it, and at most once in 30 seconds.
#[tokio::test]
async fn unknown_keys_are_fetched_twice_a_minute() {
    let (old, new) = (Pair::ed(), Pair::p256());
    let provider = Provider::with_keys(&[("old", &old)]).await;
    let people = Signed::with(&provider).await;
    let claims = provider.claims("ann", &["devs"], now());
    // Many at once cause one fetch.
    let token = old.token("old", &claims);
    let answers = futures::future::join_all((0..20).map(|_| people.get("/api/v1/workflows", &token))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(provider.fetches(), 1);
    provider.answers(Answers::Keys(jwks(&[("new", &new)])));
    let rotated = new.token("new", &claims);
    for _ in 0..50 {
        people.get("/api/v1/workflows", &rotated).await.refused(401, "unauthorized", None);
    }
    assert_eq!(provider.fetches(), 1, "within 30 seconds");
    people.s.now_is("2026-03-02T12:00:30Z").await;
    people.get("/api/v1/workflows", &rotated).await.expect(200);
    assert_eq!(provider.fetches(), 2);
    // The key that the provider has removed opens nothing.
    let mut other = claims.clone();
    other["jti"] = json!("another token");
    people.get("/api/v1/workflows", &old.token("old", &other)).await.refused(401, "unauthorized", None);
    people.end().await;
}

/// No token came for a while, so that nothing has fetched the keys again.
#[tokio::test]
async fn removed_keys_open_nothing_after_an_idle_time() {
    let (removed, new) = (Pair::ed(), Pair::ed());
    let provider = Provider::with_keys(&[("e", &removed)]).await;
    let people = Signed::with(&provider).await;
    let now = NOW.parse::<DateTime<Utc>>().unwrap();
    let token_at = |at: DateTime<Utc>| removed.token("e", &provider.claims("ann", &["devs"], at.timestamp()));
    people.get("/api/v1/workflows", &token_at(now)).await.expect(200);
    provider.answers(Answers::Keys(jwks(&[("n", &new)])));
    let later = now + TimeDelta::hours(6);
    people.s.now_is(&later.to_rfc3339()).await;
    people.get("/api/v1/workflows", &token_at(later)).await.refused(401, "unauthorized", None);
    people.end().await;
}

/// While the provider hangs, tokens that name invented keys leave places to all other callers.
#[tokio::test]
async fn few_tokens_wait_for_the_provider() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    provider.answers(Answers::Slow);
    let people = Signed::with_limits(&provider, |config| config.requests_in_flight = 70).await;
    let claims = provider.claims("ann", &["devs"], now());
    let forged: Vec<String> = (0..200).map(|nth| pair.token(&format!("invented {nth}"), &claims)).collect();
    let mut refused: futures::stream::FuturesUnordered<_> =
        forged.iter().map(|token| people.get("/api/v1/workflows", token)).collect();
    for _ in 0..120 {
        let answer = refused.next().await.unwrap();
        assert!(matches!(answer.status, 429 | 503), "{answer:?}");
    }
    Api::new(&people.url, &people.s.keys.editor).get("/api/v1/workflows").await.expect(200);
    while refused.next().await.is_some() {}
    drop(refused);
    people.end().await;
}

/// A token without `kid` names no new key, so that only its signature shows one.
#[tokio::test]
async fn new_keys_of_unnamed_tokens_are_fetched() {
    let (old, new, stranger) = (Pair::ed(), Pair::ed(), Pair::ed());
    let provider = Provider::with_keys(&[("old", &old)]).await;
    let people = Signed::with(&provider).await;
    let claims = provider.claims("ann", &["devs"], now());
    let unnamed = |pair: &Pair| pair.token_of(&json!({"alg": "EdDSA"}), &claims);
    // The decision about a token is cached for some seconds.
    let mut later = claims.clone();
    later["jti"] = json!("another token");
    let removed = old.token_of(&json!({"alg": "EdDSA"}), &later);
    people.get("/api/v1/workflows", &unnamed(&old)).await.expect(200);
    provider.answers(Answers::Keys(jwks(&[("new", &new)])));
    people.get("/api/v1/workflows", &unnamed(&new)).await.refused(401, "unauthorized", None);
    assert_eq!(provider.fetches(), 1, "within 30 seconds");
    people.s.now_is("2026-03-02T12:00:30Z").await;
    people.get("/api/v1/workflows", &unnamed(&new)).await.expect(200);
    assert_eq!(provider.fetches(), 2);
    for forged in [unnamed(&stranger), removed] {
        people.get("/api/v1/workflows", &forged).await.refused(401, "unauthorized", None);
    }
    assert_eq!(provider.fetches(), 2, "forged tokens cause no more fetches than others");
    // While the provider does not answer, a new key cannot be told from a forged one.
    provider.answers(Answers::Error);
    people.s.now_is("2026-03-02T12:01:00Z").await;
    people.get("/api/v1/workflows", &unnamed(&stranger)).await.refused(503, "identity_provider_unavailable", None);
    people.get("/api/v1/workflows", &unnamed(&new)).await.expect(200);
    people.end().await;
}

/// Without its keys nothing is decided: neither is a person let in, nor a token called wrong.
#[tokio::test]
async fn cached_keys_stay_valid_for_a_day() {
    let (pair, stranger) = (Pair::ed(), Pair::ed());
    let mut provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let claims_at = |text: &str| {
        let mut claims = provider.claims("ann", &["devs"], text.parse::<DateTime<Utc>>().unwrap().timestamp());
        claims["jti"] = json!(text);
        claims
    };
    let (first, next_day, later) =
        (claims_at(NOW), claims_at("2026-03-03T11:59:00Z"), claims_at("2026-03-03T12:00:00Z"));
    let recovered = claims_at("2026-03-03T12:00:31Z");
    people.get("/api/v1/workflows", &pair.token("e", &first)).await.expect(200);
    provider.answers(Answers::Error);
    // Its keys stay valid for a day.
    people.s.now_is("2026-03-03T11:59:00Z").await;
    people.get("/api/v1/workflows", &pair.token("e", &next_day)).await.expect(200);
    people.get("/api/v1/workflows", &stranger.token("e", &next_day)).await.refused(401, "unauthorized", None);
    people.s.now_is("2026-03-03T12:00:00Z").await;
    let refused = people.get("/api/v1/workflows", &pair.token("e", &later)).await;
    refused.refused(503, "identity_provider_unavailable", None);
    assert_eq!(refused.headers["retry-after"], "30");
    people.get("/api/v1/workflows", &stranger.token("e", &later)).await.refused(
        503,
        "identity_provider_unavailable",
        None,
    );
    Api::new(&people.url, &people.s.keys.editor).get("/api/v1/workflows").await.expect(200);
    provider.answers(Answers::Keys(jwks(&[("e", &pair)])));
    people.s.now_is("2026-03-03T12:00:31Z").await;
    people.get("/api/v1/workflows", &pair.token("e", &recovered)).await.expect(200);
    provider.go_down().await;
    people.end().await;
}

/// What a provider answers must neither fill the memory, nor occupy a request for longer than some seconds.
#[tokio::test]
async fn bad_answers_of_a_provider_are_bounded() {
    let pair = Pair::ed();
    let good = jwks(&[("e", &pair)]);
    let many = json!({"keys": vec![good["keys"][0].clone(); 101]});
    let bad = [
        Answers::Large,
        Answers::Endless,
        Answers::Slow,
        Answers::Redirect,
        Answers::Error,
        Answers::Garbage,
        Answers::Keys(json!({"keys": []})),
        Answers::Keys(many),
    ];
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let mut at = NOW.parse::<DateTime<Utc>>().unwrap();
    for (nth, answers) in bad.into_iter().enumerate() {
        provider.answers(answers.clone());
        people.s.now_is(&at.to_rfc3339()).await;
        let token = pair.token("e", &provider.claims("ann", &["devs"], at.timestamp()));
        let answer = people.get("/api/v1/workflows", &token).await;
        answer.refused(503, "identity_provider_unavailable", None);
        assert_eq!(provider.fetches(), nth + 1, "{answers:?}");
        at += TimeDelta::seconds(31);
    }
    assert_eq!(provider.redirected(), 0, "the redirect was followed");
    // Neither may the discovery document lead elsewhere.
    provider.answers(Answers::Keys(good));
    for (member, value) in [
        ("issuer", json!("https://other.example")),
        ("jwks_uri", json!("http://id.example/jwks")),
        ("jwks_uri", json!("file:///etc/passwd")),
        ("jwks_uri", json!("https://169.254.169.254/latest/meta-data/")),
        ("jwks_uri", Value::Null),
    ] {
        let fetches = provider.fetches();
        let was = json!({"issuer": provider.issuer(), "jwks_uri": format!("{}/jwks", provider.issuer())});
        provider.discovers(member, value.clone());
        people.s.now_is(&at.to_rfc3339()).await;
        let token = pair.token("e", &provider.claims("ann", &["devs"], at.timestamp()));
        people.get("/api/v1/workflows", &token).await.refused(503, "identity_provider_unavailable", None);
        assert_eq!(provider.fetches(), fetches, "{member} {value}");
        provider.discovers(member, was[member].clone());
        at += TimeDelta::seconds(31);
    }
    people.s.now_is(&at.to_rfc3339()).await;
    let token = pair.token("e", &provider.claims("ann", &["devs"], at.timestamp()));
    people.get("/api/v1/workflows", &token).await.expect(200);
    people.end().await;
}

#[tokio::test]
async fn persons_have_the_limits_of_keys() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people =
        Signed::with_limits(&provider, |config| (config.bad_keys_per_min, config.key_requests_per_sec) = (5, 1)).await;
    let token = |subject: &str| pair.token("e", &provider.claims(subject, &["devs"], now()));
    let (ann, bob) = (token("ann"), token("bob"));
    let answers = futures::future::join_all((0..60).map(|_| people.get("/api/v1/runs", &ann))).await;
    assert!(answers.iter().any(|answer| answer.status == 429), "sixty at once passed a limit of one a second");
    people.get("/api/v1/runs", &bob).await.expect(200);
    for _ in 0..5 {
        people.get("/api/v1/runs", "garbage").await.refused(401, "unauthorized", None);
    }
    people.get("/api/v1/runs", "garbage").await.refused(429, "rate_limited", None);
    people.end().await;
}

/// A million groups do not fit into a token that a server reads; as many as fit are no more than other groups.
#[tokio::test]
async fn many_groups_are_no_more_than_a_token() {
    let pair = Pair::ed();
    let provider = Provider::with_keys(&[("e", &pair)]).await;
    let people = Signed::with(&provider).await;
    let mut claims = provider.claims("ann", &[], now());
    let groups =
        |count: usize| json!((0..count).map(|nth| nth.to_string()).chain(["devs".to_owned()]).collect::<Vec<_>>());
    claims["groups"] = groups(1_500);
    people.get("/api/v1/workflows", &pair.token("e", &claims)).await.expect(200);
    claims["groups"] = groups(1_000_000);
    let status =
        Api::without_key(&people.url).request(Method::GET, "/api/v1/workflows").bearer_auth(pair.token("e", &claims));
    // The server answers before it has read the header, so the client may see its connection end instead.
    let status = status.send().await.map(|answer| answer.status().as_u16());
    assert!(matches!(status, Ok(431) | Err(_)), "{status:?}");
    people.end().await;
}

/// The app reads them before it serves.
#[test]
fn wrong_settings_stop_the_start() {
    let file = std::env::temp_dir().join(format!("cronbox-groups-{}.json", uuid::Uuid::new_v4()));
    std::fs::write(&file, "groups: [{group: a, role: admin}]").unwrap();
    let good = Oidc {
        oidc_issuer: Some("https://id.example".into()),
        oidc_audience: Some("cronbox".into()),
        oidc_groups_file: Some(file.clone()),
        oidc_groups_claim: "groups".into(),
        ..Oidc::default()
    };
    let wrong = [
        (Oidc { oidc_issuer: Some("http://id.example".into()), ..good.clone() }, "it must be https"),
        (Oidc { oidc_issuer: Some("https://169.254.169.254".into()), ..good.clone() }, "the metadata of a machine"),
        (Oidc { oidc_audience: None, ..good.clone() }, "CRONBOX_OIDC_AUDIENCE"),
        (Oidc { oidc_audience: Some(String::new()), ..good.clone() }, "CRONBOX_OIDC_AUDIENCE"),
        (Oidc { oidc_groups_file: None, ..good.clone() }, "CRONBOX_OIDC_GROUPS_FILE"),
        (Oidc { oidc_groups_file: Some("/nowhere".into()), ..good.clone() }, "CRONBOX_OIDC_GROUPS_FILE"),
        (Oidc { oidc_groups: Some("groups: []".into()), ..good.clone() }, "not both"),
        (
            Oidc { oidc_groups_file: None, oidc_groups: Some("groups: 7".into()), ..good.clone() },
            "CRONBOX_OIDC_GROUPS: ",
        ),
        (Oidc { oidc_ca_file: Some("/nowhere".into()), ..good.clone() }, "CRONBOX_OIDC_CA_FILE"),
        (Oidc { oidc_ca_file: Some(file.clone()), ..good.clone() }, "CRONBOX_OIDC_CA_FILE"),
    ];
    let start = |oidc: &Oidc| IdentityProvider::new(oidc.read_settings()?.unwrap()).map(drop);
    for (oidc, expected) in wrong {
        let error = start(&oidc).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    start(&good).unwrap();
    let inline = r#"{"groups": [{"group": "a", "role": "admin"}]}"#;
    start(&Oidc { oidc_groups_file: None, oidc_groups: Some(inline.into()), ..good.clone() }).unwrap();
    start(&Oidc { oidc_groups: Some(String::new()), ..good.clone() }).unwrap();
    start(&Oidc { oidc_issuer: Some("https://10.0.0.1:8443".into()), ..good.clone() }).unwrap();
    assert!(Oidc { oidc_issuer: None, ..good }.read_settings().unwrap().is_none());
    std::fs::remove_file(file).unwrap();
}

/// The pages of the console that a member of a team sees.
fn pages_of_members(workflow: i64, run: &str) -> Vec<String> {
    let mut pages: Vec<String> = [
        "/",
        "/workflows",
        "/workflows/new",
        "/runs",
        "/backfills",
        "/upcoming",
        "/delivery",
        "/delivery/letters",
        "/proof",
        "/proof/times",
        "/admin/audit",
        "/admin/me",
        "/admin/freezes",
        "/admin/notifications",
        "/admin/notifications/rules",
        "/admin/notifications/channels",
    ]
    .map(String::from)
    .into();
    let tabs = ["", "/runs", "/next", "/settings", "/history", "/sync"];
    pages.extend(tabs.map(|tab| format!("/workflows/{workflow}{tab}")));
    pages.push(format!("/runs/{run}"));
    pages
}

/// The form of a workflow's first version, with another name.
const FORM_OF_FIRST_VERSION: &str = "name=mine&overlap_policy=skip&max_concurrent=10&catch_up_policy=skip\
    &catch_up_window_secs=86400&spread_secs=0&timeout_secs=300&max_attempts=1&on_lost=retry\
    &action.type=log&action.message=m&etag=%221%22&seen=%7B%22document%22%3A%7B%7D%2C%22headers%22%3A%5B%5D%7D";

/// Statistics and the audit log are those of one team, and a list reads 20 teams at most.
#[tokio::test]
async fn people_of_several_teams_use_each_page() {
    let pair = Pair::rsa();
    let provider = Provider::with_keys(&[("r", &pair)]).await;
    let people = Signed::with(&provider).await;
    for nth in 1..=20 {
        people.s.admin().post("/api/v1/teams", &json!({"name": format!("many {nth}")})).await.expect(201);
    }
    let wf = people.s.create("0 9 * * *", "UTC").await;
    let fired = people.s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
    people.s.runs_end().await;
    let other_edit = json!({"description": "of another edit"});
    people.s.editor().patch(&format!("/api/v1/workflows/{wf}"), &other_edit).await.expect(200);
    let pages = pages_of_members(wf.0, fired["run_id"].as_str().unwrap());
    for (text, groups) in [("of-two", &["devs", "others"][..]), ("of-many", &["many"])] {
        sqlx::query(
            "INSERT INTO console_sessions (id, digest, issuer, subject, groups, created_on, expires_on)
             VALUES (gen_random_uuid(), sha256(convert_to($1, 'UTF8')), $2, $1, $3, cronbox_now(), cronbox_now() + interval '1 hour')",
        )
        .bind(text)
        .bind(provider.issuer())
        .bind(groups)
        .execute(&people.s.pool)
        .await
        .unwrap();
        let visitor = Visitor::of_session(&people.url, text);
        let overview = visitor.read_page("/").await;
        assert!(
            overview.contains(r#"<select name="team_id">"#) && overview.contains("The next 24 hours"),
            "{overview}"
        );
        visitor.read_page(&format!("/?team_id={}", people.s.keys.team_id)).await;
        for page in &pages {
            let answer = send_request(visitor.request_page(page)).await;
            let of_many = "you belong to many teams: send team_id";
            let may_choose =
                text == "of-many" && answer.text.contains(of_many) && answer.text.contains("Choose one of your teams");
            assert!(answer.status == 200 || may_choose, "{text} {page}: {}", answer.text);
        }
        for list in ["/workflows", "/runs", "/upcoming", "/delivery/letters", "/proof", "/admin/audit"] {
            visitor.read_page(&format!("{list}?team_id={}", people.s.keys.team_id)).await;
        }
        let lost =
            visitor.send_form(&format!("/workflows/{wf}/settings"), FORM_OF_FIRST_VERSION).await.expect(412).text;
        assert!(lost.contains("of another edit") && lost.contains("The newest edit is by"), "{text}: {lost}");
    }
    people.end().await;
}

/// Anybody can invent a code, and the cookie of a sign-in that was never begun: else the app would ask the provider as often
/// as a stranger wants, with its own secret.
#[tokio::test]
async fn invented_codes_ask_the_provider_seldom() {
    let provider = Provider::with_keys(&[("r", &Pair::rsa())]).await;
    let people = Signed::with_limits(&provider, with_client).await;
    assert!(invent_code(&people).await.expect(401).text.contains("did not confirm the sign-in"));
    for _ in 0..3 {
        invent_code(&people).await.expect(429);
    }
    assert_eq!(provider.redeemed(), 1);
    people.end().await;
}

/// A program that goes on with a revoked key shares the address of people, for example behind a proxy.
#[tokio::test]
async fn unknown_keys_take_no_try_of_sign_ins() {
    let provider = Provider::with_keys(&[("r", &Pair::rsa())]).await;
    let people = Signed::with_limits(&provider, with_client).await;
    let revoked = Api::new(&people.url, "cb_000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    for nth in 0..10 {
        assert_eq!(revoked.get("/api/v1/runs").await.status, if nth == 0 { 401 } else { 429 });
    }
    invent_code(&people).await.expect(401);
    assert_eq!(provider.redeemed(), 1);
    people.end().await;
}

/// An app that is a client of the provider, and permits one try a minute: the next one comes after a minute.
fn with_client(config: &mut app::Config) {
    config.bad_keys_per_min = 1;
    config.oidc.oidc_client_id = Some("cronbox".to_owned());
    config.mail.public_url = Some(format!("http://{}", config.bind_addr).parse().unwrap());
}

/// Comes back from the provider with a code that it has not given, and with the cookie of a sign-in that was never begun.
async fn invent_code(people: &Signed) -> Answer {
    let callback = Api::without_key(&people.url).request(Method::GET, "/sign-in/callback?state=a&code=invented");
    send_request(callback.header("cookie", "cronbox-sign-in=a.b.c.")).await
}

/// As those of a key.
#[tokio::test]
async fn sessions_of_a_person_are_bounded() {
    let s = Story::at(NOW).await;
    let person = |subject: &str| Claims {
        issuer: "https://id.example".to_owned(),
        subject: subject.to_owned(),
        email: None,
        username: None,
        groups: Vec::new(),
        expires_on: s.clock.now() + TimeDelta::hours(1),
    };
    let (ann, bob) = (person("ann"), person("bob"));
    let edit = Edit::without_request("person:ann", s.clock.now());
    let mut tx = db::begin_transaction(&s.app().pools.edits).await.unwrap();
    begin_session(&mut tx, SignIn::Person(&bob), &edit).await.unwrap();
    for _ in 0..MOST_OF_A_HOLDER {
        begin_session(&mut tx, SignIn::Person(&ann), &edit).await.unwrap();
    }
    let (newest, _) = begin_session(&mut tx, SignIn::Person(&ann), &edit).await.unwrap();
    tx.commit().await.unwrap();
    let open = "SELECT concat_ws(' ', subject, count(*)) FROM console_sessions WHERE ended_on IS NULL GROUP BY subject ORDER BY subject";
    assert_eq!(s.table(open).await, format!("ann {MOST_OF_A_HOLDER}\nbob 1"));
    let is_open = sqlx::query_scalar::<_, bool>("SELECT ended_on IS NULL FROM console_sessions WHERE id = $1");
    assert!(is_open.bind(newest).fetch_one(&s.pool).await.unwrap(), "the one that has begun stays");
    s.end_early().await;
}

/// More tokens than may wait for a provider that does not answer are decided by the keys that are known.
#[tokio::test]
async fn known_keys_decide_what_may_not_wait() {
    let pair = Pair::rsa();
    let provider = Provider::with_keys(&[("r", &pair)]).await;
    let people = Signed::with(&provider).await;
    let list = async || {
        let claims = provider.claims("ann", &["devs"], people.s.clock.now().timestamp());
        people.get("/api/v1/workflows", &pair.token("r", &claims)).await.status
    };
    assert_eq!(list().await, 200);
    provider.answers(Answers::Error);
    people.s.set_clock("2026-03-02T12:11:00Z".parse().unwrap()).await;
    assert_eq!(list().await, 200, "the provider does not answer");
    provider.answers(Answers::Slow);
    people.s.set_clock("2026-03-02T12:12:00Z".parse().unwrap()).await;
    let answers: Vec<u16> = futures::future::join_all((0..80).map(|_| list())).await;
    assert_eq!(answers, [200; 80]);
    people.end().await;
}
