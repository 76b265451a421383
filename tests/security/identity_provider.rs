//! A provider of OIDC on loopback, so that people with roles call the attacked app.

use std::path::PathBuf;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// What the tokens name as `aud`.
const AUDIENCE: &str = "cronbox";
/// For how long a token is valid: longer than an attack.
const VALID_SECS: i64 = 3_600;

/// The provider, its key, and the file of groups of the attacked app.
pub(crate) struct IdentityProvider {
    issuer: String,
    pair: Ed25519KeyPair,
    groups_file: PathBuf,
    serving: JoinHandle<()>,
}

impl IdentityProvider {
    /// Starts a provider, and writes these rules of groups.
    pub(crate) async fn start(groups: &Value) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/jwks")});
        let jwk =
            json!({"kty": "OKP", "crv": "Ed25519", "kid": "e", "use": "sig", "x": encode(pair.public_key().as_ref())});
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async move || Json(discovery)))
            .route("/jwks", get(async move || Json(json!({"keys": [jwk]}))));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let groups_file = std::env::temp_dir().join(format!("cronbox-groups-{}.json", Uuid::new_v4()));
        std::fs::write(&groups_file, json!({"groups": groups}).to_string()).unwrap();
        Self { issuer, pair, groups_file, serving }
    }

    /// The settings of an app that trusts this provider.
    pub(crate) fn settings(&self) -> [(&str, &str); 3] {
        [
            ("CRONBOX_OIDC_ISSUER", &self.issuer),
            ("CRONBOX_OIDC_AUDIENCE", AUDIENCE),
            ("CRONBOX_OIDC_GROUPS_FILE", self.groups_file.to_str().unwrap()),
        ]
    }

    /// The value of `Authorization` of a person in these groups.
    pub(crate) fn bearer(&self, groups: &[&str], now: DateTime<Utc>) -> String {
        self.bearer_for(AUDIENCE, groups, now)
    }

    /// As [`Self::bearer`], with a token that the provider issued for another program.
    pub(crate) fn bearer_for(&self, audience: &str, groups: &[&str], now: DateTime<Utc>) -> String {
        let issued = now.timestamp();
        let claims = json!({"iss": self.issuer, "sub": Uuid::new_v4(), "aud": audience, "iat": issued,
                            "exp": issued + VALID_SECS, "groups": groups});
        let header = json!({"alg": "EdDSA", "kid": "e", "typ": "JWT"});
        let message = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = encode(self.pair.sign(message.as_bytes()).as_ref());
        format!("Bearer {message}.{signature}")
    }

    /// Stops it, and removes the file of groups.
    pub(crate) fn stop(self) {
        self.serving.abort();
        std::fs::remove_file(&self.groups_file).unwrap();
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
