//! People sign in at Canaille, a real provider of OIDC, by its login form, and call the API with their tokens, or use the
//! console. The stories of `misbehaving` use a provider that signs whatever it is asked for.
//!
//! `make oidc` runs it, because it needs a venv of its own; `cargo test` skips it. All addresses are of this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod console;
mod device;
mod misbehaving;
mod mock;

use reqwest::{Certificate, Client, Method, RequestBuilder, Url, header, redirect};
use serde_json::{Value, json};
use tests::{Answer, Api, Canaille, Story, send_request};

use browser::Browser;

/// Where the provider sends people back to. Nothing listens there: the test reads the code of the redirect.
const CALLBACK: &str = "https://client.localhost/callback";

/// Follows no redirect by itself.
fn client_that_trusts(canaille: &Canaille) -> Client {
    // The app ends a connection that is idle for 10 s: none is used again when that may happen at the same moment.
    let client = Client::builder().no_proxy().pool_idle_timeout(std::time::Duration::from_secs(3));
    let client = client.redirect(redirect::Policy::none());
    let certificate = Certificate::from_pem(canaille.certificate.as_bytes()).unwrap();
    client.tls_certs_only([certificate]).build().unwrap()
}

/// Signs a person in by the forms that the provider shows, and returns the tokens.
async fn tokens_of(canaille: &Canaille, name: &str) -> Value {
    let query = [
        ("response_type", "code"),
        ("client_id", "cronbox"),
        ("redirect_uri", CALLBACK),
        ("state", "x"),
        ("scope", "openid profile email groups"),
    ];
    let first = Url::parse_with_params(&format!("{}/oauth/authorize", canaille.issuer), query).unwrap();
    let client = client_that_trusts(canaille);
    let led_back = Browser::new(client.clone()).sign_in(first, CALLBACK, name, "accept").await;
    let code = led_back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    let token = client.post(format!("{}/oauth/token", canaille.issuer));
    let token = token.basic_auth("cronbox", Some("a secret of the client"));
    let grant = [("grant_type", "authorization_code"), ("code", &*code), ("redirect_uri", CALLBACK)];
    with_form(token, &grant).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
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
    let oidc = canaille.settings(s.keys.team_id);
    let without_ca = app::config::Oidc { oidc_ca_file: None, ..oidc.clone() };
    let url = s.another_app_with(|config| config.oidc = oidc).await.unwrap();
    let untrusting = s.another_app_with(|config| config.oidc = without_ca).await.unwrap();
    let (ann, bob) = (tokens_of(&canaille, "ann").await, tokens_of(&canaille, "bob").await);
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
