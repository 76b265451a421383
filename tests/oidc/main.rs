//! People sign in at Canaille, a real provider of OIDC, by its login form, and call the API with their tokens. The
//! stories of `misbehaving` use a provider that signs whatever it is asked for.
//!
//! `make oidc` runs it, because it needs a venv of its own; `cargo test` skips it. All addresses are of this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod misbehaving;
mod mock;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use regex::Regex;
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, Url, header, redirect};
use serde_json::{Value, json};
use tests::{Answer, Api, Story, find_kept_port, send_request};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const PASSWORD: &str = "correct horse battery staple";
/// Where the provider sends people back to. Nothing listens there: the test reads the code of the redirect.
const CALLBACK: &str = "https://client.localhost/callback";

/// Canaille, until it is dropped.
struct Canaille {
    _program: Child,
    issuer: String,
    folder: PathBuf,
    certificate: Certificate,
}

impl Canaille {
    async fn start() -> Self {
        let python = local::config::target_folder().join("venv-oidc/bin/python");
        assert!(python.exists(), "{} is missing: run `make oidc`", python.display());
        let folder = std::env::temp_dir().join(format!("cronbox-oidc-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let port = find_kept_port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc/provider.py");
        let mut command = Command::new(python);
        command.arg(script).arg(port.to_string()).args([&certificate, &key]);
        command.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut program = command.spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(tests::PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(first.as_deref(), Some("ready"), "Canaille does not start");
        let certificate = Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
        Self { _program: program, issuer: format!("https://localhost:{port}"), folder, certificate }
    }

    /// Signs a person in by the forms that the provider shows, and returns the tokens.
    async fn sign_in(&self, name: &str) -> Value {
        let mut browser = Browser::new(self);
        let query = [
            ("response_type", "code"),
            ("client_id", "cronbox"),
            ("redirect_uri", CALLBACK),
            ("state", "x"),
            ("scope", "openid profile email groups"),
        ];
        let first = Url::parse_with_params(&format!("{}/oauth/authorize", self.issuer), query).unwrap();
        let mut response = browser.get(first).await;
        let code = loop {
            if let Some(next) = response.headers().get(header::LOCATION) {
                let next = response.url().join(next.to_str().unwrap()).unwrap();
                if next.as_str().starts_with(CALLBACK) {
                    break next.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
                }
                response = browser.get(next).await;
                continue;
            }
            assert_eq!(response.status(), 200, "{}", response.url());
            response = browser.fill_form(response, name).await;
        };
        let token = self.client().post(format!("{}/oauth/token", self.issuer));
        let token = token.basic_auth("cronbox", Some("a secret of the client"));
        let grant = [("grant_type", "authorization_code"), ("code", &*code), ("redirect_uri", CALLBACK)];
        with_form(token, &grant).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    fn client(&self) -> Client {
        let client = Client::builder().no_proxy().redirect(redirect::Policy::none());
        client.tls_certs_only([self.certificate.clone()]).build().unwrap()
    }
}

impl Drop for Canaille {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// What a browser does: it keeps cookies.
struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn new(canaille: &Canaille) -> Self {
        Self { client: canaille.client(), cookies: BTreeMap::new() }
    }

    async fn get(&mut self, url: Url) -> Response {
        self.send(self.client.get(url)).await
    }

    async fn fill_form(&mut self, page: Response, name: &str) -> Response {
        let (url, html) = (page.url().clone(), page.text().await.unwrap());
        let token = Regex::new(r#"name="csrf_token"[^>]*value="([^"]+)""#).unwrap();
        let token = token.captures(&html).map_or("", |found| found.get(1).unwrap().as_str());
        let (field, value) = match html.contains(r#"name="password""#) {
            true => ("password", PASSWORD),
            false => ("login", name),
        };
        let request = self.client.post(url.clone()).header(header::REFERER, url.as_str());
        self.send(with_form(request, &[("csrf_token", token), (field, value)])).await
    }

    async fn send(&mut self, request: RequestBuilder) -> Response {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let response = request.header(header::COOKIE, cookies.join("; ")).send().await.unwrap();
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), rest.split(';').next().unwrap_or_default().to_owned());
        }
        response
    }
}

fn with_form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let encoded = Url::parse_with_params("http://localhost", fields).unwrap();
    let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request.body(encoded.query().unwrap().to_owned())
}

async fn call(url: &str, method: Method, path: &str, token: &Value, body: Option<&Value>) -> Answer {
    let request = Api::without_key(url).request(method, path).bearer_auth(token.as_str().unwrap());
    send_request(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await
}

/// By its own certificate authority, discovery, keys and groups.
#[tokio::test]
async fn people_of_canaille_use_the_api() {
    let canaille = Canaille::start().await;
    let mut s = Story::today().await;
    let groups = canaille.folder.join("groups.yaml");
    std::fs::write(&groups, format!(
        "groups:\n  - {{group: developers, team_id: {team}, role: editor}}\n  - {{group: visitors, team_id: {team}, role: viewer}}\n",
        team = s.keys.team_id,
    )).unwrap();
    let oidc = app::config::Oidc {
        oidc_issuer: Some(canaille.issuer.clone()),
        oidc_audience: Some("cronbox".to_owned()),
        oidc_groups_file: Some(groups),
        oidc_groups_claim: "groups".to_owned(),
        oidc_ca_file: Some(canaille.folder.join("certificate.pem")),
        oidc_allow_http: false,
    };
    let without_ca = app::config::Oidc { oidc_ca_file: None, ..oidc.clone() };
    let url = s.another_app_with(|config| config.oidc = oidc).await.unwrap();
    let untrusting = s.another_app_with(|config| config.oidc = without_ca).await.unwrap();
    let (ann, bob) = (canaille.sign_in("ann").await, canaille.sign_in("bob").await);
    let body = json!({"name": "a", "action": {"type": "log", "message": "hi"}});
    let path = "/api/v1/workflows";
    call(&url, Method::POST, path, &ann["access_token"], Some(&body)).await.expect(201);
    call(&url, Method::POST, path, &bob["access_token"], Some(&body)).await.refused(403, "forbidden", None);
    for person in [&ann, &bob] {
        for kind in ["access_token", "id_token"] {
            let listed = call(&url, Method::GET, path, &person[kind], None).await.expect(200);
            assert_eq!(listed.json["items"].as_array().unwrap().len(), 1, "{kind}");
        }
    }
    let actor = format!("person:ann@example.com ({} ann)", canaille.issuer);
    assert_eq!(s.table("SELECT actor FROM audit_log WHERE actor LIKE 'person:%'").await, actor);
    // An app that does not trust the provider's certificate decides nothing.
    let unknown = call(&untrusting, Method::GET, path, &ann["access_token"], None).await;
    unknown.refused(503, "identity_provider_unavailable", None);
    s.end().await;
}
