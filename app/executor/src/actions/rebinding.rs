//! Tests malicious name servers: at each send, the client connects only to the addresses that it checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chrono::DateTime;
use egress::allowed::{Allowed, Names, Tenant};
use egress::{Client, Departure};
use schedule::WorkflowId;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use traces::Span;
use workflows::definition::action::Action;
use workflows::signing::SigningSecret;

use super::{Again, Call, Context, Outcome, Sender, check_reach, perform_action};

const TENANT: Tenant<'static> = Tenant { team_id: Some(1), hosts: &[] };
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
/// An address of this machine that the operator has not allowed.
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// An address of this machine that the operator has allowed.
const ALLOWED: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// An address that may be reached, and that is in no network which the operator has allowed: a translator would pass a
/// connection on to [`ALLOWED`].
const OUTSIDE: IpAddr = IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x7f00, 1));

/// A listener on both addresses of this machine, which records the address of each connection.
struct Listener {
    port: u16,
    connected: Arc<Mutex<Vec<IpAddr>>>,
}

impl Listener {
    async fn start(answer: &'static str) -> Self {
        let allowed = TcpListener::bind((ALLOWED, 0)).await.unwrap();
        let port = allowed.local_addr().unwrap().port();
        let connected: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
        tokio::spawn(answer_all(allowed, answer, connected.clone()));
        // Without a second loopback address there is nothing to connect to.
        if let Ok(inside) = TcpListener::bind((INSIDE, port)).await {
            tokio::spawn(answer_all(inside, answer, connected.clone()));
        }
        Self { port, connected }
    }

    fn connected(&self) -> Vec<IpAddr> {
        self.connected.lock().unwrap().clone()
    }
}

async fn answer_all(listener: TcpListener, answer: &'static str, met: Arc<Mutex<Vec<IpAddr>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        met.lock().unwrap().push(stream.local_addr().unwrap().ip());
        let mut request = vec![0; 16 * 1024];
        let _read = stream.read(&mut request).await;
        // The connection closes after each answer, because a reused connection would not resolve the name again.
        let _written = stream.write_all(answer.as_bytes()).await;
    }
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Returns these answers in turn and repeats the last; counts the resolutions.
fn names(answers: &'static [&'static [IpAddr]]) -> (Allowed, Arc<AtomicUsize>) {
    let requested = Arc::new(AtomicUsize::new(0));
    let counted = requested.clone();
    let names = Names::Given(Arc::new(move |_| {
        let nth = counted.fetch_add(1, Ordering::Relaxed);
        answers[nth.min(answers.len() - 1)].to_vec()
    }));
    (Allowed::new(vec!["127.0.0.1/32".parse().unwrap()]).with_names(names).with_http(true), requested)
}

fn action(port: u16) -> serde_json::Value {
    json!({"type": "http", "method": "POST", "url": format!("http://rebinding.example:{port}/")})
}

async fn send(allowed: &Allowed, port: u16) -> Outcome {
    send_as(false, allowed, port).await
}

async fn send_as(may_use_http: bool, allowed: &Allowed, port: u16) -> Outcome {
    let client = Client::new(allowed.clone()).unwrap();
    let now = DateTime::UNIX_EPOCH;
    let context = Context {
        is_catch_up: false,
        is_recovery: false,
        lateness_s: 0,
        original_scheduled_time: None,
        recovery_attempt_time: None,
        last_scheduled_time: None,
        next_scheduled_times: Vec::new(),
    };
    let call = Call {
        run_id: uuid::Uuid::nil(),
        workflow_id: WorkflowId(1),
        trigger: "manual".to_owned(),
        scheduled_time: None,
        attempt: 1,
        inputs: json!({}),
        context,
    };
    let secret = SigningSecret("whsec_AAAA".to_owned());
    let secrets = std::slice::from_ref(&secret);
    let sender = Sender {
        tenant: TENANT,
        may_use_http,
        client: &client,
        secrets,
        now,
        span: &Span::default(),
        departure: &Departure::default(),
    };
    perform_action(&Action::parse(&action(port)).unwrap(), &call, &sender).await
}

fn assert_refused(outcome: &Outcome) {
    let Outcome::Failed { error, again, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.ends_with("rebinding.example is not a public address; an operator can allow its network"), "{error}");
    assert_eq!(*again, Again::Never);
}

#[tokio::test]
async fn the_checked_address_is_the_called_one() {
    let listener = Listener::start(FINE).await;
    let (allowed, requested) = names(&[&[ALLOWED], &[INSIDE]]);
    assert!(matches!(send(&allowed, listener.port).await, Outcome::Succeeded(_)));
    assert_eq!(requested.load(Ordering::Relaxed), 1, "resolved once");
    assert_refused(&send(&allowed, listener.port).await);
    assert_eq!(listener.connected(), [ALLOWED]);
}

#[tokio::test]
async fn addresses_are_checked_again_when_sent() {
    let listener = Listener::start(FINE).await;
    let (allowed, _) = names(&[&[PUBLIC], &[INSIDE]]);
    check_reach(&action(listener.port), &allowed, TENANT).await.unwrap();
    assert_refused(&send(&allowed, listener.port).await);
    assert!(listener.connected().is_empty());
}

/// A name is refused if any of its addresses is private, because its name server chooses the one that is called.
#[tokio::test]
async fn one_private_address_refuses_a_name() {
    let listener = Listener::start(FINE).await;
    const MIXED: [&[&[IpAddr]]; 3] = [&[&[PUBLIC, INSIDE]], &[&[INSIDE, PUBLIC]], &[&[ALLOWED, PUBLIC, INSIDE]]];
    for answers in MIXED {
        let (allowed, _) = names(answers);
        let refused = check_reach(&action(listener.port), &allowed, TENANT).await.unwrap_err();
        assert_eq!(refused.field, "action.url");
        assert_refused(&send(&allowed, listener.port).await);
    }
    assert!(listener.connected().is_empty());
}

/// The name led to a network of the operator when the workflow was saved. Header values and inputs do not follow it to the
/// internet unencrypted, except those of a workflow that was saved before https was required.
#[tokio::test]
async fn clear_text_does_not_follow_a_name() {
    let listener = Listener::start(FINE).await;
    let (allowed, _) = names(&[&[ALLOWED], &[ALLOWED], &[ALLOWED, OUTSIDE]]);
    let strict = allowed.with_http(false);
    check_reach(&action(listener.port), &strict, TENANT).await.unwrap();
    assert!(matches!(send(&strict, listener.port).await, Outcome::Succeeded(_)));
    let Outcome::Failed { error, again, .. } = send(&strict, listener.port).await else { panic!("sent") };
    let refused = "cannot connect: the URL must begin with https://; an operator can permit http";
    assert_eq!((error.as_str(), again), (refused, Again::Never));
    assert_eq!(listener.connected(), [ALLOWED]);
    assert!(matches!(send_as(true, &strict, listener.port).await, Outcome::Succeeded(_)));
}

/// A redirect to a private address is an answer, which fails the run.
#[tokio::test]
async fn redirects_are_not_followed() {
    let listener = Listener::start(
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/meta-data/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    )
    .await;
    let (allowed, requested) = names(&[&[ALLOWED]]);
    let Outcome::Failed { error, again, .. } = send(&allowed, listener.port).await else { panic!("followed") };
    assert_eq!((error.as_str(), again), ("the receiver answered 302 Found", Again::Never));
    assert_eq!((listener.connected().len(), requested.load(Ordering::Relaxed)), (1, 1));
}
