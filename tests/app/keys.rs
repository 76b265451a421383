//! `cronbox-app keys ensure`: a deployment brings its first key.

use std::process::Output;

use serde_json::json;
use tests::{Api, Story};

use crate::startup::{app, expect_error, run, serve, stop};

async fn generate(kind: &str) -> String {
    let made = run(app().args(["keys", "generate", "--kind", kind])).await;
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

async fn ensure(s: &Story, key: &str, words: &[&str]) -> Output {
    let mut command = app();
    command.args(["keys", "ensure"]).args(words).env("DATABASE_URL", s.dsn()).env("CRONBOX_KEY", key);
    run(&mut command).await
}

async fn ensure_with_variable(s: &Story, key: &str, words: &[&str], accepted: &str) -> Output {
    let mut command = app();
    command.args(["keys", "ensure"]).args(words).env("DATABASE_URL", s.dsn()).env("CRONBOX_KEY", key);
    run(command.env("CRONBOX_ACCEPT_ENDED_KEYS", accepted)).await
}

const RUNNER: [&str; 4] = ["--kind", "scheduler", "--name", "runner"];

#[tokio::test]
async fn ensured_keys_are_created_once() {
    let s = Story::today().await;
    let key = generate("scheduler").await;
    let both = futures::future::join_all((0..4).map(|_| ensure(&s, &key, &RUNNER))).await;
    let said: Vec<_> = both.iter().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).collect();
    assert!(both.iter().all(|output| output.status.success()), "{both:?}");
    let prefix = &key[..16];
    assert_eq!(said.iter().filter(|line| **line == format!("key {prefix} created")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|line| **line == format!("key {prefix} exists")).count(), 3, "{said:?}");
    assert_eq!(s.count("SELECT count(*) FROM api_keys WHERE name = 'runner'").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE after ->> 'name' = 'runner'").await, 1);
    Api::new(s.url(), &key).post("/api/v1/cron/workflows/1:invoke", &json!({})).await.expect(400);
    s.end().await;
}

#[tokio::test]
async fn unusable_keys_are_not_ensured() {
    let s = Story::today().await;
    let key = generate("scheduler").await;
    let refused = async |key: &str, words: &[&str], sentence: &str| {
        let output = ensure(&s, key, words).await;
        expect_error(&output, sentence);
        assert!(!String::from_utf8_lossy(&output.stderr).contains(&key[key.len().min(16)..]) || key.len() <= 16);
    };
    for weak in ["secret", "", "hunter2hunter2hunter2hunter2hunter2hunter2hunter2hunter2hunter2", &key[..64]] {
        refused(weak, &RUNNER, "it is no key").await;
    }
    let repeated = access::key_text::add_checksum(format!("cbs_{}", "ab0".repeat(18) + "c"));
    refused(&repeated, &RUNNER, "its secret is not random").await;
    refused("cb_0123456789ab_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &RUNNER, "cannot be created any more").await;
    refused(&key, &["--kind", "admin", "--name", "runner"], "a key of another kind").await;
    assert!(ensure(&s, &key, &RUNNER).await.status.success());
    let forged = access::key_text::add_checksum(key[..16].to_owned() + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg");
    refused(&forged, &RUNNER, "another key has the same prefix").await;
    let narrower = [&RUNNER[..], &["--allowed-cidrs", "10.0.0.0/8"]].concat();
    refused(&key, &narrower, "it exists with another kind, team, role").await;
    s.execute("UPDATE api_keys SET revoked_on = now() WHERE name = 'runner'").await;
    refused(&key, &RUNNER, "it was revoked").await;
    s.execute("UPDATE api_keys SET revoked_on = NULL, expires_on = now() WHERE name = 'runner'").await;
    refused(&key, &RUNNER, "it has expired").await;
    s.end().await;
}

/// The app's task waits for this command. A rotation or a revocation that leaves the old key in the secret store must not keep each
/// later task from its start.
#[tokio::test]
async fn ended_keys_stop_no_start() {
    let s = Story::today().await;
    let key = generate("admin").await;
    let words = ["--kind", "admin", "--name", "operator", "--accept-ended"];
    let warned = async |why: &str| {
        let output = ensure(&s, &key, &words).await;
        // Deployments set the variable, which an older image ignores.
        let by_variable = ensure_with_variable(&s, &key, &words[..4], "true").await;
        assert_eq!((by_variable.status, &by_variable.stdout), (output.status, &output.stdout), "{by_variable:?}");
        expect_error(&ensure_with_variable(&s, &key, &words[..4], "false").await, why);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        assert!(log.contains("WARN") && log.contains("ended key accepted") && log.contains(why), "{log}");
        assert!(log.contains(&key[..16]) && !log.contains(&key[16..]), "{log}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("key {} has ended\n", &key[..16]));
        Api::new(s.url(), &key).get("/api/v1/keys").await.expect(401);
    };
    let created = ensure(&s, &key, &words).await;
    assert_eq!(String::from_utf8_lossy(&created.stdout), format!("key {} created\n", &key[..16]));
    s.execute("UPDATE api_keys SET revoked_on = now() WHERE name = 'operator'").await;
    warned("it was revoked").await;
    s.execute("UPDATE api_keys SET revoked_on = NULL, expires_on = now() WHERE name = 'operator'").await;
    warned("it has expired").await;
    assert_eq!(s.count("SELECT count(*) FROM api_keys WHERE name = 'operator'").await, 1, "it is not created again");
    let other = ensure(&s, &key, &["--kind", "scheduler", "--name", "operator", "--accept-ended"]).await;
    expect_error(&other, "a key of another kind");
    s.end().await;
}

/// So a deployment that stores a key of version 0.1 can run the command, too.
#[tokio::test]
async fn ensured_keys_of_version_0_1_exist() {
    let s = Story::today().await;
    let key = "cb_0123456789ab_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    s.execute(
        "INSERT INTO api_keys (id, prefix, hash, kind, name, created_on)
         VALUES (gen_random_uuid(), '0123456789ab', sha256('cb_0123456789ab_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'),
                 'scheduler', 'runner', now())",
    )
    .await;
    let output = ensure(&s, key, &RUNNER).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "key 0123456789ab exists\n");
    s.end().await;
}

#[tokio::test]
async fn created_keys_have_their_restrictions() {
    let s = Story::today().await;
    let create = async |words: &[&str]| {
        let mut command = app();
        command
            .args(["keys", "create", "--kind", "admin", "--name", "auditor"])
            .args(words)
            .env("DATABASE_URL", s.dsn());
        run(&mut command).await
    };
    let made = create(&[
        "--scopes",
        "auditor",
        "--allowed-cidrs",
        "127.0.0.1,10.0.0.0/8",
        "--expires-on",
        "2099-01-01T00:00:00Z",
    ]);
    let made = made.await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let api = Api::new(s.url(), &key);
    let listed = api.get("/api/v1/keys?limit=200").await.expect(200).json;
    let shown = listed["items"].as_array().unwrap().iter().find(|shown| shown["name"] == "auditor").unwrap().clone();
    assert_eq!(shown["scopes"], json!(["auditor"]));
    assert_eq!(shown["allowed_cidrs"], json!(["127.0.0.1/32", "10.0.0.0/8"]));
    assert_eq!(shown["expires_on"], "2099-01-01T00:00:00Z");
    api.post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.refused(403, "forbidden", None);
    expect_error(&create(&["--expires-on", "2020-01-01T00:00:00Z"]).await, "expires_on must be in the future");
    expect_error(&create(&["--scopes", "invoke"]).await, "cannot have the scope invoke");
    expect_error(&create(&["--allowed-cidrs", "10.1.2.3/8"]).await, "write 10.0.0.0/8");
    s.end().await;
}

/// Otherwise the last minute of an instance would be missing.
#[tokio::test]
async fn uses_are_written_at_shutdown() {
    let s = Story::today().await;
    let key = generate("admin").await;
    assert!(ensure(&s, &key, &["--kind", "admin", "--name", "used"]).await.status.success());
    let (mut serving, url) = serve(&s.dsn()).await;
    Api::new(&url, &key).get("/api/v1/keys").await.expect(200);
    let written = "SELECT count(*) FROM api_keys WHERE name = 'used' AND host(last_used_from) = '127.0.0.1'";
    assert_eq!(s.count(written).await, 0, "the request itself writes nothing");
    stop(&mut serving).await;
    assert_eq!(s.count(written).await, 1);
    s.end().await;
}

/// A lost admin key needs no SQL: the machine with the database's login lists keys and revokes them.
#[tokio::test]
async fn keys_and_teams_are_listed_and_revoked() {
    let s = Story::today().await;
    let dsn = s.dsn();
    let run = |words: &'static [&'static str], id: Option<String>| {
        let dsn = dsn.clone();
        async move {
            let mut command = app();
            let output = command.args(words).args(id).env("DATABASE_URL", dsn).output().await.unwrap();
            let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
            (output.status.success(), said)
        }
    };
    assert_eq!(run(&["teams", "ls"], None).await, (true, format!("{}\tteam\n", s.keys.team_id)));
    let (_, listed) = run(&["keys", "ls"], None).await;
    let line =
        listed.lines().find(|line| line.contains("\teditor") || line.contains("local editor")).unwrap().to_owned();
    assert!(!listed.contains(&s.keys.admin), "{listed}");
    let id = line.split('\t').next().unwrap().to_owned();
    let (is_good, said) = run(&["keys", "revoke"], Some(id.clone())).await;
    assert!(is_good && said.contains("is revoked"), "{said}");
    assert!(!run(&["keys", "ls"], None).await.1.contains(&id));
    assert!(run(&["keys", "ls", "--revoked"], None).await.1.contains(&id));
    let unknown = run(&["keys", "revoke"], Some("0198c1d2-0000-7000-8000-000000000000".to_owned())).await;
    assert!(!unknown.0 && unknown.1.contains("keys ls"), "{unknown:?}");
    s.end_early().await;
}
