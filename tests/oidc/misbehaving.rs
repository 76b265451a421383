//! A provider that signs what it should not, changes its key without a word, or is not there.

use std::path::PathBuf;

use access::people::token::Refusal;
use app::config::Oidc;
use app::identity_provider::{IdentityProvider, Verified};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::{Client, Method, Url, redirect};
use serde_json::{Value, json};
use tests::{Answer, Story, find_kept_port};

use super::browser::{Browser, location_of};
use super::call;
use super::mock::{Mock, parameter};

const WORKFLOWS: &str = "/api/v1/workflows";

/// A story with an app that trusts the mock. Its clock begins when the mock has signed its first token.
struct Signed {
    s: Story,
    url: String,
    oidc: Oidc,
    begin: DateTime<Utc>,
    /// As the app has one, but it says why it refuses a token.
    verifier: IdentityProvider,
    groups: PathBuf,
}

impl Signed {
    async fn with(mock: &Mock) -> Self {
        // The first story of a process starts Postgres, and the provider's clock goes on. A token may be a minute ahead only.
        let mut s = Story::at("2026-01-01T00:00:00Z").await;
        mock.set_claims("ann", &right_claims()).await;
        let first = claims_of(&mock.id_token("ann").await);
        let begin = DateTime::from_timestamp(first["iat"].as_i64().unwrap(), 0).unwrap();
        s.now_is(&begin.to_rfc3339()).await;
        let groups = std::env::temp_dir().join(format!("cronbox-groups-{}.json", uuid::Uuid::new_v4()));
        let rules = json!({"groups": [{"group": "developers", "team_id": s.keys.team_id, "role": "editor"}]});
        std::fs::write(&groups, rules.to_string()).unwrap();
        let oidc = Oidc {
            oidc_issuer: Some(mock.issuer()),
            oidc_audience: Some("cronbox".to_owned()),
            oidc_groups_file: Some(groups.clone()),
            oidc_groups_claim: "groups".to_owned(),
            ..Oidc::default()
        };
        let of_app = oidc.clone();
        let url = s.another_app_with(|config| config.oidc = of_app).await.unwrap();
        let verifier = IdentityProvider::new(oidc.read_settings().unwrap().unwrap()).unwrap();
        Self { s, url, oidc, begin, verifier, groups }
    }

    async fn list(&self, token: &str) -> Answer {
        call(&self.url, Method::GET, WORKFLOWS, &json!(token), None).await
    }

    /// Sets the clock to so many seconds after the first token.
    async fn after(&self, seconds: i64) {
        self.s.now_is(&self.time(seconds).to_rfc3339()).await;
    }

    fn time(&self, seconds: i64) -> DateTime<Utc> {
        self.begin + TimeDelta::seconds(seconds)
    }

    /// The app refuses the token as any other one, for this reason.
    async fn refuses(&self, token: &str, seconds: i64, reason: Refusal) {
        self.list(token).await.refused(401, "unauthorized", None);
        match self.verifier.verify_token(token, self.time(seconds)).await {
            Verified::Refused(refusal) => assert_eq!(refusal, reason, "{}", claims_of(token)),
            other => panic!("{other:?}: {}", claims_of(token)),
        }
    }

    async fn end(self) {
        std::fs::remove_file(&self.groups).unwrap();
        self.s.end_early().await;
    }
}

fn right_claims() -> Value {
    json!({"groups": ["developers"], "email": "ann@example.com"})
}

fn claims_of(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

/// What else the provider gives to a client is no token, and what it takes back later stays valid until its end.
#[tokio::test]
async fn only_id_tokens_of_the_mock_open_the_api() {
    let mock = Mock::start(find_kept_port(), "RS256").await;
    let people = Signed::with(&mock).await;
    mock.set_claims("bob", &json!({"groups": ["visitors"]})).await;
    let tokens = mock.sign_in(&mock.issuer(), "cronbox", "ann").await;
    let id_token = tokens["id_token"].as_str().unwrap();
    let body = json!({"name": "a", "action": {"type": "log", "message": "hi"}});
    call(&people.url, Method::POST, WORKFLOWS, &tokens["id_token"], Some(&body)).await.expect(201);
    let actor = format!("person:ann@example.com ({} ann)", mock.issuer());
    assert_eq!(people.s.table("SELECT actor FROM audit_log WHERE actor LIKE 'person:%'").await, actor);
    people.list(&mock.id_token("bob").await).await.refused(403, "forbidden", None);
    for other in ["access_token", "refresh_token"] {
        people.list(tokens[other].as_str().unwrap()).await.refused(401, "unauthorized", None);
    }
    assert_eq!(mock.refresh(&tokens).await.status, 200);
    mock.revoke("ann").await;
    assert_eq!(mock.refresh(&tokens).await.status, 400, "the provider has ended the session");
    let issued = claims_of(id_token)["iat"].as_i64().unwrap() - people.begin.timestamp();
    people.after(issued + 359).await;
    people.list(id_token).await.expect(200);
    people.after(issued + 360).await;
    people.refuses(id_token, issued + 360, Refusal::Expired).await;
    people.end().await;
}

/// The key of the provider signed each of these, so that only the claims can be wrong.
#[tokio::test]
async fn wrong_claims_of_the_mock_open_nothing() {
    let mock = Mock::start(find_kept_port(), "RS256").await;
    let people = Signed::with(&mock).await;
    let begin = people.begin.timestamp();
    let wrong = [
        ("aud", json!("another-client"), Refusal::Audience),
        ("aud", json!(["another-client", "cronbox2"]), Refusal::Audience),
        ("aud", Value::Null, Refusal::Audience),
        ("iss", json!("https://evil.example"), Refusal::Issuer),
        ("iss", json!(format!("{}/", mock.issuer())), Refusal::Issuer),
        ("iss", Value::Null, Refusal::Issuer),
        ("exp", json!(begin - 60), Refusal::Expired),
        ("exp", Value::Null, Refusal::NoEnd),
        ("exp", json!("tomorrow"), Refusal::Malformed),
        ("nbf", json!(begin + 61), Refusal::NotYetValid),
        ("iat", json!(begin + 61), Refusal::IssuedInFuture),
        ("cnf", json!({"jkt": "x"}), Refusal::Bound),
    ];
    for (claim, value, reason) in wrong {
        let mut claims = right_claims();
        claims[claim] = value;
        mock.set_claims("eve", &claims).await;
        people.refuses(&mock.id_token("eve").await, 0, reason).await;
    }
    let of_another = mock.sign_in(&mock.issuer(), "another-client", "ann").await;
    people.refuses(of_another["id_token"].as_str().unwrap(), 0, Refusal::Audience).await;
    let by_another_name = mock.sign_in(&mock.other_issuer(), "cronbox", "ann").await;
    people.refuses(by_another_name["id_token"].as_str().unwrap(), 0, Refusal::Issuer).await;
    mock.set_claims("eve", &right_claims()).await;
    people.list(&mock.id_token("eve").await).await.expect(200);
    people.end().await;
}

/// A token without a signature is the provider's word, and not its key's.
#[tokio::test]
async fn other_algorithms_of_the_mock_open_nothing() {
    let mut mock = Mock::start(find_kept_port(), "RS256").await;
    let people = Signed::with(&mock).await;
    for algorithm in ["none", "RS512", "PS256"] {
        mock = mock.restart(algorithm).await;
        mock.set_claims("ann", &right_claims()).await;
        let token = mock.id_token("ann").await;
        let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&header).unwrap()["alg"], algorithm);
        people.refuses(&token, 0, Refusal::Algorithm).await;
    }
    mock = mock.restart("RS256").await;
    mock.set_claims("ann", &right_claims()).await;
    people.list(&mock.id_token("ann").await).await.expect(200);
    people.end().await;
}

/// Its tokens name no key, so that a new one shows only by a signature that no known key made.
#[tokio::test]
async fn rotated_keys_without_kid_are_fetched() {
    let mut mock = Mock::start(find_kept_port(), "RS256").await;
    let people = Signed::with(&mock).await;
    // Different tokens, because the decision about a token is cached for some seconds.
    let [first, second, third] = [mock.id_token("ann").await, mock.id_token("ann").await, mock.id_token("ann").await];
    people.list(&first).await.expect(200);
    mock.stop().await;
    people.after(20).await;
    people.list(&second).await.expect(200);
    mock = mock.restart("RS256").await;
    mock.set_claims("ann", &right_claims()).await;
    let new = mock.id_token("ann").await;
    people.list(&new).await.refused(401, "unauthorized", None);
    people.after(30).await;
    people.list(&new).await.expect(200);
    people.after(40).await;
    people.refuses(&third, 40, Refusal::Signature).await;
    people.list(&new).await.expect(200);
    people.end().await;
}

/// Without its keys nothing is decided about a token that may be right.
#[tokio::test]
async fn tokens_wait_for_an_absent_mock() {
    let mut mock = Mock::start(find_kept_port(), "RS256").await;
    let mut people = Signed::with(&mock).await;
    let token = mock.id_token("ann").await;
    // Its discovery document has another issuer than the settings.
    let with_slash = Oidc { oidc_issuer: Some(format!("{}/", mock.issuer())), ..people.oidc.clone() };
    let url = people.s.another_app_with(|config| config.oidc = with_slash).await.unwrap();
    let mut claims = right_claims();
    claims["iss"] = json!(format!("{}/", mock.issuer()));
    mock.set_claims("eve", &claims).await;
    let of_slash = call(&url, Method::GET, WORKFLOWS, &json!(mock.id_token("eve").await), None).await;
    of_slash.refused(503, "identity_provider_unavailable", None);
    mock.stop().await;
    people.list(&token).await.refused(503, "identity_provider_unavailable", None);
    mock = mock.restart("RS256").await;
    mock.set_claims("ann", &right_claims()).await;
    let token = mock.id_token("ann").await;
    people.list(&token).await.refused(503, "identity_provider_unavailable", None);
    people.after(30).await;
    people.list(&token).await.expect(200);
    people.end().await;
}

/// A client whose sign-in failed has nothing that opens the API.
#[tokio::test]
async fn failed_sign_ins_open_nothing() {
    let mut mock = Mock::start(find_kept_port(), "RS256").await;
    let people = Signed::with(&mock).await;
    let issuer = mock.issuer();
    let denied = mock.answer_form(&issuer, "cronbox", &[("action", "deny")]).await;
    assert_eq!(parameter(&denied, "error").as_deref(), Some("access_denied"));
    assert_eq!(parameter(&denied, "code"), None);
    let code = parameter(&mock.answer_form(&issuer, "cronbox", &[("sub", "ann")]).await, "code").unwrap();
    people.list(&code).await.refused(401, "unauthorized", None);
    let stolen = mock.exchange(&issuer, "another-client", &code).await;
    assert_eq!((stolen.status, &stolen.json["error"]), (400, &json!("invalid_grant")));
    let own = mock.exchange(&issuer, "cronbox", &code).await;
    assert_eq!(own.status, 200);
    people.list(own.json["id_token"].as_str().unwrap()).await.expect(200);
    let again = mock.exchange(&issuer, "cronbox", &code).await;
    assert_eq!((again.status, &again.json["error"]), (400, &json!("invalid_grant")));
    // It cannot sign by a secret with its key, so that its token endpoint fails.
    mock = mock.restart("HS256").await;
    let code = parameter(&mock.answer_form(&issuer, "cronbox", &[("sub", "ann")]).await, "code").unwrap();
    let failed = mock.exchange(&issuer, "cronbox", &code).await;
    assert_eq!((failed.status, failed.json), (500, Value::Null));
    people.list(own.json["id_token"].as_str().unwrap()).await.expect(200);
    people.end().await;
}

/// The key of the provider signed each of these for the code of this sign-in.
#[tokio::test]
async fn wrong_id_tokens_of_the_mock_begin_no_session() {
    let mock = Mock::start(find_kept_port(), "RS256").await;
    let mut people = Signed::with(&mock).await;
    let of_console = Some("cronbox".to_owned());
    let oidc = Oidc { oidc_client_id: of_console, oidc_client_secret: Some("any".to_owned()), ..people.oidc.clone() };
    let url = people.s.another_app_with(|config| {
        config.mail.public_url = Some(format!("http://{}", config.bind_addr).parse().unwrap());
        config.oidc = oidc;
    });
    let begin: Url = format!("{}/sign-in/provider?next=/runs", url.await.unwrap()).parse().unwrap();
    let sign_in = async |claims: Value| {
        mock.set_claims("eve", &claims).await;
        let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).build().unwrap();
        let mut browser = Browser::new(client);
        let page = location_of(&browser.get(begin.clone()).await).unwrap();
        let callback = mock.lead_back(page, "eve").await;
        let answer = browser.get(callback).await;
        let is_signed_in = browser.cookie("127.0.0.1", "cronbox").is_some();
        (answer.status().as_u16(), location_of(&answer).map(|url| url.path().to_owned()), is_signed_in)
    };
    let seconds = people.begin.timestamp();
    let wrong = [
        ("nonce", json!("of another sign-in")),
        ("nonce", Value::Null),
        ("aud", json!("another-client")),
        ("aud", json!(["another-client", "cronbox2"])),
        ("iss", json!("https://evil.example")),
        ("exp", json!(seconds - 61)),
    ];
    for (claim, value) in wrong {
        let mut claims = right_claims();
        claims[claim] = value;
        assert_eq!(sign_in(claims.clone()).await, (401, None, false), "{claims}");
    }
    assert_eq!(sign_in(right_claims()).await, (303, Some("/runs".to_owned()), true));
    people.end().await;
}
