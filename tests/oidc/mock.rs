//! `oidc-provider-mock`: a provider that signs any claims, by any algorithm that its key permits, without `kid`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::{Client, Response, Url, header, redirect};
use serde_json::Value;
use tests::PATIENCE;
use tokio::process::{Child, Command};

use super::{CALLBACK, with_form};

/// The provider, until it is dropped.
pub(crate) struct Mock {
    program: Child,
    port: u16,
    client: Client,
}

/// The answer of the token endpoint.
pub(crate) struct Exchanged {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

impl Mock {
    /// With a new key, which signs by this algorithm.
    pub(crate) async fn start(port: u16, algorithm: &str) -> Self {
        let python = local::config::target_folder().join("venv-oidc/bin/python");
        assert!(python.exists(), "{} is missing: run `make oidc`", python.display());
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc/mock.py")).args([&port.to_string(), algorithm]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        // A connection for each request: the mock ends idle ones, and a POST on one that it has just ended fails.
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0).redirect(redirect::Policy::none());
        let client = client.build().unwrap();
        let mock = Self { program: command.spawn().unwrap(), port, client };
        tokio::time::timeout(PATIENCE, mock.until_ready()).await.expect("the mock starts");
        mock
    }

    async fn until_ready(&self) {
        while self.client.get(format!("{}/jwks", self.issuer())).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends it, and starts it with a new key.
    pub(crate) async fn restart(mut self, algorithm: &str) -> Self {
        self.stop().await;
        Self::start(self.port, algorithm).await
    }

    /// From now on nothing listens at its address.
    pub(crate) async fn stop(&mut self) {
        self.program.kill().await.unwrap();
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same provider by another name. It says in its tokens by which one it was asked.
    pub(crate) fn other_issuer(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// Sets the claims of a person, which replace those that the provider would choose.
    pub(crate) async fn set_claims(&self, subject: &str, claims: &Value) {
        let said = self.client.put(format!("{}/users/{subject}", self.issuer())).json(claims).send().await.unwrap();
        assert_eq!(said.status(), 204);
    }

    /// The id token of a person for this app.
    pub(crate) async fn id_token(&self, subject: &str) -> String {
        let tokens = self.sign_in(&self.issuer(), "cronbox", subject).await;
        tokens["id_token"].as_str().unwrap().to_owned()
    }

    /// The tokens of a person for a client.
    pub(crate) async fn sign_in(&self, issuer: &str, client_id: &str, subject: &str) -> Value {
        let answer = self.answer_form(issuer, client_id, &[("sub", subject)]).await;
        let code = parameter(&answer, "code").expect("a code");
        let exchanged = self.exchange(issuer, client_id, &code).await;
        assert_eq!(exchanged.status, 200, "{}", exchanged.json);
        exchanged.json
    }

    /// Sends the form that the provider shows, and returns its redirect.
    pub(crate) async fn answer_form(&self, issuer: &str, client_id: &str, fields: &[(&str, &str)]) -> Response {
        let query = [
            ("response_type", "code"),
            ("client_id", client_id),
            ("redirect_uri", CALLBACK),
            ("scope", "openid profile email"),
        ];
        let page = Url::parse_with_params(&format!("{issuer}/oauth2/authorize"), query).unwrap();
        let answer = with_form(self.client.post(page), fields).send().await.unwrap();
        assert_eq!(answer.status(), 302);
        answer
    }

    /// Signs a person in on the page to which an app has led; returns where the provider leads back.
    pub(crate) async fn lead_back(&self, page: Url, subject: &str) -> Url {
        let answer = with_form(self.client.post(page), &[("sub", subject)]).send().await.unwrap();
        assert_eq!(answer.status(), 302);
        answer.headers()[header::LOCATION].to_str().unwrap().parse().unwrap()
    }

    /// Asks for the tokens of a code.
    pub(crate) async fn exchange(&self, issuer: &str, client_id: &str, code: &str) -> Exchanged {
        let grant = [("grant_type", "authorization_code"), ("code", code), ("redirect_uri", CALLBACK)];
        self.grant(issuer, client_id, &grant).await
    }

    /// Asks for a new access token.
    pub(crate) async fn refresh(&self, tokens: &Value) -> Exchanged {
        let refresh = tokens["refresh_token"].as_str().unwrap();
        self.grant(&self.issuer(), "cronbox", &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
    }

    /// Ends the sessions of a person.
    pub(crate) async fn revoke(&self, subject: &str) {
        let revoked = self.client.post(format!("{}/users/{subject}/revoke-tokens", self.issuer())).send().await;
        assert_eq!(revoked.unwrap().status(), 204);
    }

    async fn grant(&self, issuer: &str, client_id: &str, fields: &[(&str, &str)]) -> Exchanged {
        let request = self.client.post(format!("{issuer}/oauth2/token")).basic_auth(client_id, Some("any"));
        let answer = with_form(request, fields).send().await.unwrap();
        let status = answer.status().as_u16();
        Exchanged { status, json: answer.json().await.unwrap_or(Value::Null) }
    }
}

/// A parameter of the address to which the provider sends a browser.
pub(crate) fn parameter(answer: &Response, name: &str) -> Option<String> {
    let url: Url = answer.headers()[header::LOCATION].to_str().unwrap().parse().unwrap();
    url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}
