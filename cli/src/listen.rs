//! `cronbox listen`: a receiver on this machine, which prints each request and verifies its signature.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use schedule::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::print::{one_line, print_error, print_text};
use crate::signature::{Invalid, verify_signature};

/// For how long a connection may send its request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a body at most.
const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// A receiver.
#[derive(Args)]
pub(crate) struct Listen {
    /// The port on this machine; 0 = a free one.
    #[arg(value_name = "PORT", default_value_t = 9000)]
    port: u16,
    /// The team's signing secret, whsec_..: verify each signature, and answer 401 if it is not valid.
    #[arg(long, env = "CRONBOX_SIGNING_SECRET", hide_env_values = true, value_name = "SECRET")]
    secret: Option<String>,
    /// The status of the answers.
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..600))]
    status: u16,
    /// The body of the answers.
    #[arg(long, value_name = "TEXT", default_value = "")]
    answer: String,
    /// End after so many requests.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Answers requests until Ctrl-C, or until it has answered enough.
pub(crate) async fn listen(listen: &Listen) -> anyhow::Result<ExitCode> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    print_error(&format!("listening on http://{}", listener.local_addr()?));
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel::<()>();
    let answer = Answer { secret: listen.secret.clone(), status: listen.status, text: listen.answer.clone() };
    let mut left = listen.count;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.context("cannot accept a connection")?;
                let (answer, answered) = (answer.clone(), answered.clone());
                tokio::spawn(async move {
                    if serve_connection(stream, &answer).await {
                        answered.send(()).ok();
                    }
                });
            }
            Some(()) = answers.recv() => {
                left = left.map(|left| left.saturating_sub(1));
                if left == Some(0) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// How requests are answered.
#[derive(Clone)]
struct Answer {
    secret: Option<String>,
    status: u16,
    text: String,
}

/// Answers the request of a connection; returns whether there was one. A client that sends nothing loses its connection.
async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Answer) -> bool {
    let is_asked = AtomicBool::new(false);
    let serve = service_fn(|request| {
        is_asked.store(true, Ordering::Relaxed);
        answer_request(request, answer)
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), serve);
    // A client may close its connection at any time.
    tokio::time::timeout(PATIENCE, connection).await.ok();
    is_asked.into_inner()
}

async fn answer_request(request: Request<Incoming>, answer: &Answer) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_BODY).collect().await else {
        return Ok(response(StatusCode::PAYLOAD_TOO_LARGE, ""));
    };
    let body = body.to_bytes();
    let verdict = answer.secret.as_deref().map(|secret| check(&head.headers, secret, &body));
    let shown = match &verdict {
        None => "signature not checked: set CRONBOX_SIGNING_SECRET",
        Some(Ok(())) => "signature valid",
        Some(Err(Invalid::Age(_))) => "signature NOT valid: too old",
        Some(Err(Invalid::Secret)) => "signature NOT valid: the secret must be whsec_ and base64",
        Some(Err(Invalid::Signature)) => "signature NOT valid",
    };
    let mut lines = format!("{} {}  {shown}\n", head.method, one_line(&head.uri.to_string()));
    for (name, value) in head.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-cronbox-")) {
        lines.push_str(&format!("  {name}: {}\n", one_line(&String::from_utf8_lossy(value.as_bytes()))));
    }
    lines.push_str(&format!("  {}\n", one_line(&String::from_utf8_lossy(&body))));
    print_text(&lines).ok();
    let is_refused = matches!(verdict, Some(Err(_)));
    let chosen = StatusCode::from_u16(answer.status).unwrap_or_default();
    Ok(response(if is_refused { StatusCode::UNAUTHORIZED } else { chosen }, &answer.text))
}

fn check(headers: &HeaderMap, secret: &str, body: &[u8]) -> Result<(), Invalid> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Invalid::Signature);
    let timestamp = header("webhook-timestamp")?.parse().map_err(|_| Invalid::Signature)?;
    verify_signature(
        secret,
        header("webhook-id")?,
        timestamp,
        header("webhook-signature")?,
        body,
        Some(Clock::System.now()),
    )
}

fn response(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn answer() -> Answer {
        Answer { secret: None, status: 200, text: "fine".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_loses_its_connection() {
        for sent in ["", "GET / HTTP/1.1\r\nhost: a\r\n"] {
            let (mut client, server) = tokio::io::duplex(1024);
            client.write_all(sent.as_bytes()).await.unwrap();
            // The clock goes to the end of the patience, because nothing else happens.
            assert!(!serve_connection(server, &answer()).await, "{sent}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_answered_once() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(serve_connection(server, &answer()).await);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nfine"), "{text}");
    }
}
