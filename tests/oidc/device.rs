//! `cronbox login` by the device flow, at npm's oidc-provider: a person confirms the code in a browser, by the provider's own forms.

use std::collections::BTreeMap;
use std::process::Stdio;

use regex::Regex;
use reqwest::{Url, header};
use serde_json::{Value, json};
use tests::{PATIENCE, Story, find_kept_port};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::with_form;

/// The provider, until it is dropped.
struct Provider {
    _program: Child,
    issuer: String,
}

impl Provider {
    /// Starts it; `None`: npm is missing on this machine, as `scripts/oidc.sh` has said.
    async fn start(token_secs: &str) -> Option<Self> {
        let folder = local::config::target_folder().join("oidc-device");
        if !folder.join("node_modules").exists() {
            return None;
        }
        let port = find_kept_port();
        let mut command = Command::new("node");
        command.args(["provider.mjs", &port.to_string(), token_secs]).current_dir(folder);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(first.as_deref(), Some("ready"), "the provider does not start");
        // It ends when nothing reads its notices.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self { _program: program, issuer: format!("http://127.0.0.1:{port}") })
    }
}

/// Follows the forms of the provider, as a person who signs in as `name` and confirms everything.
async fn confirm(address: &str, name: &str) {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let (form, input) = (
        Regex::new(r#"<form[^>]*action="([^"]+)""#).unwrap(),
        Regex::new(r#"<input[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?"#).unwrap(),
    );
    let mut cookies = BTreeMap::<String, String>::new();
    let mut request = client.get(address);
    for _ in 0..20 {
        let all: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = request.header(header::COOKIE, all.join("; ")).send().await.unwrap();
        for cookie in answer.headers().get_all(header::SET_COOKIE) {
            let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
            cookies.insert(name.to_owned(), rest.split(';').next().unwrap_or_default().to_owned());
        }
        let url = answer.url().clone();
        if let Some(next) = answer.headers().get(header::LOCATION) {
            request = client.get(url.join(next.to_str().unwrap()).unwrap());
            continue;
        }
        let page = answer.text().await.unwrap();
        let Some(found) = form.captures(&page) else {
            assert!(page.contains("Sign-in Success"), "{page}");
            return;
        };
        let target: Url = url.join(&found[1]).unwrap();
        let mut fields = vec![("confirm", "yes")];
        for field in input.captures_iter(&page) {
            let (field, value) = (field.get(1).unwrap().as_str(), field.get(2).map_or("", |value| value.as_str()));
            fields.push((
                field,
                if field == "login" {
                    name
                } else if value.is_empty() {
                    "x"
                } else {
                    value
                },
            ));
        }
        request = with_form(client.post(target), &fields);
    }
    panic!("the provider has no end");
}

/// A person whose home folder keeps the profile.
struct Person(tempfolder::Folder);

mod tempfolder {
    /// A folder that is removed in the end.
    pub(super) struct Folder(pub(super) std::path::PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }
}

impl Person {
    fn new() -> Self {
        let home = std::env::temp_dir().join(format!("cronbox-device-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&home).unwrap();
        Self(tempfolder::Folder(home))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
        command
            .args(words)
            .env("HOME", &self.0.0)
            .env_remove("CRONBOX_KEY")
            .env_remove("CRONBOX_URL")
            .kill_on_drop(true);
        command
    }

    async fn json(&self, words: &[&str]) -> Value {
        let output = self.command(words).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[tokio::test]
async fn a_person_logs_in_by_a_code() {
    // The token lives for less than the time before which it is renewed, so each command renews it.
    let Some(provider) = Provider::start("20").await else { return };
    let mut s = Story::today().await;
    let groups = std::env::temp_dir().join(format!("cronbox-groups-{}.yaml", uuid::Uuid::new_v4()));
    std::fs::write(&groups, format!("groups:\n  - {{group: developers, team_id: {}, role: editor}}\n", s.keys.team_id))
        .unwrap();
    let oidc = app::config::Oidc {
        oidc_client_id: None,
        oidc_client_secret: None,
        oidc_issuer: Some(provider.issuer.clone()),
        oidc_audience: Some("cronbox-cli".to_owned()),
        oidc_groups_file: Some(groups.clone()),
        oidc_groups: None,
        oidc_groups_claim: "groups".to_owned(),
        oidc_ca_file: None,
        oidc_allow_http: true,
    };
    let url = s.another_app_with(|config| config.oidc = oidc).await.unwrap();
    let person = Person::new();
    let words = ["login", "--url", &url, "--issuer", &provider.issuer, "--client-id", "cronbox-cli"];
    let mut child = person.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let asked = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = Regex::new(r"http\S+").unwrap().find(&asked).unwrap().as_str().to_owned();
    confirm(&address, "ann").await;
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let rest = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    assert!(output.status.success(), "{rest:?}");

    let me = person.json(&["me", "-o", "json"]).await;
    assert_eq!((&me["is_person"], &me["teams"][0]["role"]), (&json!(true), &json!("editor")));
    let file = std::fs::read_to_string(person.0.0.join(".config/cronbox/config.toml")).unwrap();
    person.json(&["workflow", "create", "by a person", "--log", "m", "-o", "json"]).await;
    let renewed = std::fs::read_to_string(person.0.0.join(".config/cronbox/config.toml")).unwrap();
    assert_ne!(file, renewed, "the token was renewed");
    let actors = s.table("SELECT actor FROM audit_log WHERE actor LIKE 'person:%'").await;
    assert!(actors.contains(&format!("({} ann)", provider.issuer)), "{actors}");
    std::fs::remove_file(groups).ok();
    s.end().await;
}
