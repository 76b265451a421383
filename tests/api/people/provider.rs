//! A small provider of OIDC on loopback, which behaves as badly as a story wants, and signs any token.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How the provider answers at `jwks_uri`.
#[derive(Clone, Debug)]
pub(crate) enum Answers {
    /// With this document.
    Keys(Value),
    /// With a document of ten megabytes.
    Large,
    /// With bytes that never end.
    Endless,
    /// With a byte each second.
    Slow,
    /// With a redirect to its keys.
    Redirect,
    /// With an error.
    Error,
    /// With something that is no JWKS.
    Garbage,
}

/// A key pair of the provider.
pub(crate) enum Pair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

struct Shared {
    issuer: String,
    discovery: Mutex<Value>,
    answers: Mutex<Answers>,
    fetches: AtomicUsize,
    redirected: AtomicUsize,
    redeemed: AtomicUsize,
}

/// The provider.
pub(crate) struct Provider {
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl Provider {
    /// A provider with these keys, each with its `kid`.
    pub(crate) async fn with_keys(keys: &[(&str, &Pair)]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let at = |path: &str| format!("{issuer}/{path}");
        let discovery = json!({"issuer": issuer, "jwks_uri": at("jwks"), "authorization_endpoint": at("authorize"),
                               "token_endpoint": at("token")});
        let shared = Arc::new(Shared {
            issuer,
            discovery: Mutex::new(discovery),
            answers: Mutex::new(Answers::Keys(jwks(keys))),
            fetches: AtomicUsize::new(0),
            redirected: AtomicUsize::new(0),
            redeemed: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(show_discovery))
            .route("/jwks", get(show_keys))
            .route("/redirected", get(show_redirected))
            .route("/token", post(refuse_code))
            .with_state(shared.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { shared, serving }
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.shared.issuer
    }

    /// How often its keys were fetched.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    /// How often a client followed its redirect.
    pub(crate) fn redirected(&self) -> usize {
        self.shared.redirected.load(Ordering::SeqCst)
    }

    /// How often a code was sent to it, all of which it refuses.
    pub(crate) fn redeemed(&self) -> usize {
        self.shared.redeemed.load(Ordering::SeqCst)
    }

    pub(crate) fn answers(&self, answers: Answers) {
        *self.shared.answers.lock().unwrap() = answers;
    }

    /// Changes a member of the discovery document.
    pub(crate) fn discovers(&self, member: &str, value: Value) {
        self.shared.discovery.lock().unwrap()[member] = value;
    }

    /// From now on nothing listens at its address.
    pub(crate) async fn go_down(&mut self) {
        self.serving.abort();
        (&mut self.serving).await.err();
    }

    /// The claims of a valid token for a person of these groups.
    pub(crate) fn claims(&self, subject: &str, groups: &[&str], now: i64) -> Value {
        json!({"iss": self.issuer(), "sub": subject, "aud": "cronbox", "exp": now + 300, "iat": now, "groups": groups,
               "email": format!("{subject}@example.com")})
    }
}

async fn show_discovery(State(shared): State<Arc<Shared>>) -> Response {
    axum::Json(shared.discovery.lock().unwrap().clone()).into_response()
}

async fn show_redirected(State(shared): State<Arc<Shared>>) -> Response {
    shared.redirected.fetch_add(1, Ordering::SeqCst);
    axum::Json(json!({"keys": []})).into_response()
}

async fn refuse_code(State(shared): State<Arc<Shared>>) -> Response {
    shared.redeemed.fetch_add(1, Ordering::SeqCst);
    (StatusCode::BAD_REQUEST, axum::Json(json!({"error": "invalid_grant"}))).into_response()
}

async fn show_keys(State(shared): State<Arc<Shared>>) -> Response {
    shared.fetches.fetch_add(1, Ordering::SeqCst);
    let answers = shared.answers.lock().unwrap().clone();
    let endless = |chunk: Bytes, pause: Duration| {
        Body::from_stream(futures::stream::unfold(chunk, move |chunk| async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, std::io::Error>(chunk.clone()), chunk))
        }))
    };
    match answers {
        Answers::Keys(document) => axum::Json(document).into_response(),
        Answers::Large => format!(r#"{{"keys":[{{"kid":"{}"}}]}}"#, "x".repeat(10_000_000)).into_response(),
        Answers::Endless => endless(Bytes::from(vec![b' '; 65_536]), Duration::ZERO).into_response(),
        Answers::Slow => endless(Bytes::from_static(b" "), Duration::from_secs(1)).into_response(),
        Answers::Redirect => (StatusCode::FOUND, [(header::LOCATION, "/redirected")]).into_response(),
        Answers::Error => StatusCode::BAD_GATEWAY.into_response(),
        Answers::Garbage => "<html>sign in</html>".into_response(),
    }
}

/// The document of these keys.
pub(crate) fn jwks(keys: &[(&str, &Pair)]) -> Value {
    let keys = keys.iter().map(|(kid, pair)| {
        let mut jwk = pair.jwk();
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        jwk
    });
    json!({"keys": keys.collect::<Vec<_>>()})
}

impl Pair {
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(crate) fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    pub(crate) fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    pub(crate) fn alg(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed(_) => "EdDSA",
        }
    }

    /// The bytes of the public key, which everyone knows.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rsa(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::P256(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn jwk(&self) -> Value {
        match self {
            Self::Rsa(pair) => {
                // SEQUENCE { INTEGER 0 n, INTEGER e } with a modulus of 2048 bits.
                let der = pair.public_key().as_ref();
                json!({"kty": "RSA", "n": encode(&der[9..265]), "e": encode(&der[267..270])})
            }
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..65])})
            }
            Self::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())})
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with this `kid`.
    pub(crate) fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_of(&json!({"alg": self.alg(), "kid": kid, "typ": "JWT"}), claims)
    }

    /// A token with any header, signed by this pair.
    pub(crate) fn token_of(&self, header: &Value, claims: &Value) -> String {
        let message = message_of(header, &claims.to_string());
        format!("{message}.{}", encode(&self.sign(message.as_bytes())))
    }
}

/// The first two parts of a token.
pub(crate) fn message_of(header: &Value, claims: &str) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.as_bytes()))
}

/// A token that is "signed" with a secret.
pub(crate) fn token_by_secret(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let message = message_of(header, &claims.to_string());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", encode(tag.as_ref()))
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
