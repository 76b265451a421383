//! Step 7 of 7, tests: mail servers that refuse, fall silent, or hang up, at each step of an e-mail.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lettre::transport::smtp::authentication::Credentials;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{AcceptedFor, Mail, MailError, Mailer, RefusedRecipient};
use crate::allowed::{Allowed, Names};

/// What the server does after a line of the client.
enum Reply {
    Says(&'static str),
    HangsUp,
    IsSilent,
}

type Script = dyn Fn(&str) -> Reply + Send + Sync;

/// A server at two addresses of this machine.
struct Server {
    port: u16,
    lines: Arc<Mutex<Vec<String>>>,
}

/// The answers of a server that accepts everything.
fn accept(line: &str) -> Reply {
    Reply::Says(match line {
        "connect" => "220 ready",
        "EHLO [127.0.0.1]" => "250-mail.example\r\n250 AUTH PLAIN",
        "DATA" => "354 go on",
        "QUIT" => "221 bye",
        _ => "250 ok",
    })
}

impl Server {
    /// A server that answers a connection, each command, and the end of a text (`.`) by the script.
    async fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let (first, second) = listen_twice().await;
        let server = Self { port: first.local_addr().unwrap().port(), lines: Arc::default() };
        let script: Arc<Script> = Arc::new(script);
        for listener in [first, second] {
            let (script, lines) = (script.clone(), server.lines.clone());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(converse(stream, script.clone(), lines.clone()));
                }
            });
        }
        server
    }

    /// A server that answers the commands that begin with `begin` by `reply`, and accepts all others.
    async fn refusing(begin: &'static str, reply: &'static str) -> Self {
        Self::start(move |line| if line.starts_with(begin) { Reply::Says(reply) } else { accept(line) }).await
    }

    /// A mailer that signs in. The name of its server has two addresses.
    fn mailer(&self) -> Mailer {
        let addresses = |_: &str| vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        let server = format!("smtp://mail.example:{}?tls=none", self.port);
        Mailer {
            allowed: Allowed::for_operators().with_names(Names::Given(Arc::new(addresses))),
            credentials: Some(Credentials::new("user".to_owned(), "password".to_owned())),
            ..Mailer::new(&server, "cronbox <cronbox@example.com>").unwrap()
        }
    }

    /// Sends an e-mail to two recipients.
    async fn send(&self) -> Result<AcceptedFor, MailError> {
        let to = ["good@example.com".to_owned(), "bad@example.com".to_owned()];
        self.mailer().send(Mail { id: "1", to: &to, subject: "a subject", text: "a text" }).await
    }

    /// How many lines of clients were this one.
    fn count(&self, line: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|one| *one == line).count()
    }
}

/// Two addresses of this machine, at a port that is free at both.
async fn listen_twice() -> (TcpListener, TcpListener) {
    let mut refused = None;
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        match TcpListener::bind(("127.0.0.2", first.local_addr().unwrap().port())).await {
            Ok(second) => return (first, second),
            Err(error) => refused = Some(error),
        }
    }
    panic!("127.0.0.2 must be an address of this machine: {refused:?}")
}

async fn converse(stream: TcpStream, script: Arc<Script>, lines: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    let mut next = Some("connect".to_owned());
    while let Some(line) = next {
        lines.lock().unwrap().push(line.clone());
        match script(&line) {
            Reply::Says(words) => stream.write_all(format!("{words}\r\n").as_bytes()).await.unwrap(),
            Reply::HangsUp => return,
            Reply::IsSilent => std::future::pending::<()>().await,
        }
        next = next_line(&mut stream, line == "DATA").await;
    }
}

/// The next command, or the end of a text; `None`: the client has ended the connection.
async fn next_line(stream: &mut BufReader<TcpStream>, is_text: bool) -> Option<String> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if !is_text || line == "." {
            return Some(line.to_owned());
        }
    }
}

/// An operator corrects the password, and the e-mail arrives. The other address has the same passwords.
#[tokio::test]
async fn refused_passwords_are_not_final() {
    let server = Server::refusing("AUTH", "535 5.7.8 wrong password").await;
    let error = server.send().await.unwrap_err();
    assert_eq!(error.to_string(), "the e-mail was not accepted: permanent error (535): 5.7.8 wrong password");
    assert!(!error.is_final());
    assert_eq!(server.count("connect"), 1);
}

#[tokio::test]
async fn a_bad_recipient_stops_no_other() {
    for (answer, words, is_final) in [
        ("550 5.1.1 no such user", "permanent error (550): 5.1.1 no such user", true),
        ("451 4.7.1 greylisted", "transient error (451): 4.7.1 greylisted", false),
    ] {
        let server = Server::refusing("RCPT TO:<bad@", answer).await;
        let refused = RefusedRecipient { address: "bad@example.com".to_owned(), words: words.to_owned(), is_final };
        assert_eq!(server.send().await.unwrap(), AcceptedFor::AllBut(vec![refused]));
        assert_eq!(server.count("."), 1);
    }
}

/// A policy has an end: the operator permits the sender, the mailbox is emptied, the filter is changed.
#[tokio::test]
async fn only_missing_mailboxes_are_final() {
    for (begin, reply, is_final) in [
        ("MAIL", "550 sender refused", false),
        ("RCPT", "550 5.1.1 no such user", true),
        ("RCPT", "553 no such user", true),
        ("RCPT", "550 5.7.1 relaying denied", false),
        ("RCPT", "554 5.7.1 relaying denied", false),
        ("RCPT", "452 4.2.2 the mailbox is full", false),
        (".", "554 5.7.1 this is spam", false),
    ] {
        let server = Server::refusing(begin, reply).await;
        let error = server.send().await.unwrap_err();
        assert_eq!(error.is_final(), is_final, "{begin}: {error}");
        assert_eq!(server.count("connect"), 1, "{begin}: {error}");
    }
    assert_eq!(Server::start(accept).await.send().await.unwrap(), AcceptedFor::All);
}

/// The server may have the e-mail, so its other address must not get it at once. A later attempt has the same id.
#[tokio::test]
async fn lost_answers_send_no_second_mail() {
    let hangs_up_at = |begin: &'static str| {
        Server::start(move |line| if line.starts_with(begin) { Reply::HangsUp } else { accept(line) })
    };
    let server = hangs_up_at(".").await;
    assert!(!server.send().await.unwrap_err().is_final());
    assert_eq!((server.count("connect"), server.count(".")), (1, 1));
    let server = hangs_up_at("MAIL").await;
    assert!(!server.send().await.unwrap_err().is_final());
    assert_eq!(server.count("connect"), 2, "before the e-mail the other address is tried");
}

#[tokio::test]
async fn silence_at_any_step_ends() {
    for silent_at in ["connect", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "."] {
        let script = move |line: &str| if line.starts_with(silent_at) { Reply::IsSilent } else { accept(line) };
        let server = Server::start(script).await;
        let to = ["ops@example.com".to_owned()];
        let mailer = server.mailer().with_send_limit(Duration::from_millis(200));
        let sent = mailer.send(Mail { id: "1", to: &to, subject: "a subject", text: "a text" }).await;
        let error = sent.unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{silent_at}: {error}");
        assert!(!error.is_final(), "{silent_at}");
    }
}
