//! Step 7 of 7, tests: receivers that send what no honest receiver sends, and receivers whose certificate is not trusted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::departure::Departure;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn client() -> Client {
    Client::new(Allowed::new(vec!["127.0.0.0/8".parse().unwrap()])).unwrap()
}

async fn send(client: &Client, team_id: i64, url: String) -> Result<Vec<u8>, String> {
    let outgoing = Outgoing {
        tenant: Tenant { team_id: Some(team_id), hosts: &[] },
        method: Method::POST,
        url: &url.parse().unwrap(),
        may_use_http: false,
        headers: HeaderMap::new(),
        body: Departing::new("{}", &Departure::default()),
    };
    let answered = async { client.send(outgoing).await?.read_beginning(1_000).await };
    tokio::time::timeout(PATIENCE, answered).await.expect("an end").map_err(|error| error.to_string())
}

/// A receiver on a thread of its own. It answers each request on a connection with `answer`, as often as `times`.
fn receiver(answer: String, times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let answer = answer.clone();
            thread::spawn(move || {
                while stream.read(&mut [0; 4_096]).is_ok_and(|read| read > 0) {
                    for _ in 0..times {
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// The HTTP client skips interim answers, and would do so as long as they come.
#[tokio::test]
async fn interim_answers_without_end_fail() {
    let flood = receiver("HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000), usize::MAX);
    let fine = receiver(FINE.to_owned(), 1);
    let client = client();
    let (flooded, answered) =
        tokio::join!(send(&client, 1, format!("http://{flood}/")), send(&client, 2, format!("http://{fine}/")),);
    assert_eq!(flooded, Err("the request failed: the receiver sent more than 16 interim answers (1xx)".to_owned()));
    assert_eq!(answered, Ok(b"ok".to_vec()));
}

/// A connection that is used again begins to count again.
#[tokio::test]
async fn some_interim_answers_are_skipped() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(10);
    let receiver = receiver(format!("{interim}{FINE}"), 1);
    let client = client();
    for _ in 0..5 {
        assert_eq!(send(&client, 1, format!("http://{receiver}/")).await, Ok(b"ok".to_vec()));
    }
}

#[tokio::test]
async fn heads_without_end_fail() {
    let receiver = receiver(format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "x".repeat(100_000)), 1);
    let failed = send(&client(), 1, format!("http://{receiver}/")).await;
    assert_eq!(failed, Err("the request failed: message head is too large".to_owned()));
}

/// A receiver with a certificate of its own for 127.0.0.1.
async fn tls_receiver() -> (SocketAddr, rcgen::CertifiedKey<rcgen::KeyPair>) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _read = stream.read(&mut [0; 4_096]).await;
                let _written = stream.write_all(FINE.as_bytes()).await;
                let _ended = stream.shutdown().await;
            }
        }
    });
    (address, own)
}

#[tokio::test]
async fn unknown_certificates_are_refused() {
    let (receiver, own) = tls_receiver().await;
    let url = format!("https://{receiver}/");
    let refused = send(&client(), 1, url.clone()).await.unwrap_err();
    assert!(refused.starts_with("cannot connect: invalid peer certificate"), "{refused}");

    let trusting = Client::with_authorities(client().allowed, own.cert.pem().as_bytes()).unwrap();
    assert_eq!(send(&trusting, 1, url.clone()).await, Ok(b"ok".to_vec()));
    let by_name = url.replace("127.0.0.1", "localhost");
    let by_name = Client {
        allowed: Allowed::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]),
        ..trusting.clone()
    }
    .pair(&by_name)
    .await;
    assert!(by_name.starts_with("cannot connect: invalid peer certificate"), "{by_name}");
}

/// A wrong file must stop the start, and not leave the client without the authority.
#[test]
fn wrong_authorities_are_refused() {
    let with = |pem: &str| Client::with_authorities(Allowed::default(), pem.as_bytes()).map(drop);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for text in ["", "groups: []", &own.signing_key.serialize_pem(), "-----BEGIN CERTIFICATE-----\n"] {
        assert_eq!(with(text).unwrap_err().to_string(), "the file has no PEM certificates", "{text}");
    }
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(format!("{:#}", with(garbage).unwrap_err()).starts_with("cannot set up TLS: "));
    with(&format!("{}{}", own.signing_key.serialize_pem(), own.cert.pem().repeat(2))).unwrap();
}

impl Client {
    /// Sends with connections of its own, and returns the failure.
    async fn pair(self, url: &str) -> String {
        let own = Self { teams: Cache::new(10), ..self };
        send(&own, 1, url.to_owned()).await.unwrap_err()
    }
}
