//! Step 7 of 7: e-mail by SMTP, to the server that an operator has set.
//!
//! Its name is resolved as the names of all requests are, and only addresses that were checked are connected to. The
//! certificate must be of the name.

mod recipients;
#[cfg(test)]
mod scripted_servers;
mod session;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lettre::Message;
use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use url::Url;

pub use self::recipients::{RefusedRecipient, in_one_line};
use self::session::{Failure, Session};
use crate::allowed::{Allowed, Transport, Unreachable};
use crate::hosts::{is_listed, parse_host};

/// How long a delivery may take, from the lookup of the server's name to the answer to the e-mail. The lease of a message
/// is longer.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// How long one address of the server may take until it is ready for the e-mail, so that a dead one leaves time for the
/// next one.
const OPEN_LIMIT: Duration = Duration::from_secs(15);

/// How the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    /// From its begin: `smtps://`.
    Implicit,
    /// By STARTTLS, which the server must offer: `smtp://`.
    StartTls,
    /// Never: `smtp://..?tls=none`.
    Never,
}

/// The domains to which e-mail may go: `example.com`, or `*.example.com` for all below it. Without any, it may go to all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailDomains(Vec<String>);

impl FromStr for MailDomains {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let listed = text.split(',').map(str::trim).filter(|domain| !domain.is_empty());
        let parse = |domain| parse_host(domain).with_context(|| format!("{domain} is no domain as example.com"));
        listed.map(parse).collect::<anyhow::Result<_>>().map(Self)
    }
}

impl MailDomains {
    /// Whether e-mail may go to this address.
    #[must_use]
    pub fn permits(&self, address: &str) -> bool {
        let domain = address.rsplit_once('@').and_then(|(_, domain)| parse_host(domain));
        self.0.is_empty() || domain.is_some_and(|domain| is_listed(&self.0, &domain))
    }
}

impl fmt::Display for MailDomains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Sends e-mail through one server.
#[derive(Clone)]
pub struct Mailer {
    allowed: Allowed,
    host: String,
    port: u16,
    encryption: Encryption,
    credentials: Option<Credentials>,
    from: Mailbox,
    recipients: MailDomains,
    send_limit: Duration,
}

/// An e-mail.
#[derive(Clone, Copy, Debug)]
pub struct Mail<'a> {
    /// The first part of its `Message-ID`: a repeated delivery has the same.
    pub id: &'a str,
    /// The addresses.
    pub to: &'a [String],
    /// One line.
    pub subject: &'a str,
    /// Plain text.
    pub text: &'a str,
}

/// The recipients for which the server accepted an e-mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedFor {
    /// For all recipients.
    All,
    /// For all but these.
    AllBut(Vec<RefusedRecipient>),
}

/// Why an e-mail was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The server cannot be reached.
    #[error("the mail server cannot be reached: {0}")]
    Unreachable(#[from] Unreachable),
    /// An address or the text is none that can be sent.
    #[error("the e-mail cannot be written: {0}")]
    NotWritable(String),
    /// It may go to none of the recipients.
    #[error("the operator permits no e-mail to {0}")]
    NotPermitted(String),
    /// The server has none of the recipients.
    #[error("the mail server refuses the e-mail: {0}")]
    Refused(String),
    /// The connection failed, or the server refused the sender or the e-mail, which an operator can end.
    #[error("the e-mail was not accepted: {0}")]
    Failed(String),
}

impl From<Failure> for MailError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::BeforeMessage(words) | Failure::Temporary(words) => Self::Failed(words),
            Failure::Permanent(words) => Self::Refused(words),
        }
    }
}

impl MailError {
    /// Whether the same e-mail would fail in the same way again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NotWritable(_) | Self::NotPermitted(_) | Self::Refused(_))
    }
}

impl Mailer {
    /// Reads where the server is, `smtps://user:password@host:465`, `smtp://host:587` (STARTTLS), or
    /// `smtp://host:25?tls=none`, and the sender, `cronbox <cronbox@example.com>`.
    ///
    /// # Errors
    /// Fails if one of them is not valid. The text contains no password.
    pub fn new(server: &str, from: &str) -> anyhow::Result<Self> {
        let url: Url = server.parse().ok().context("must be smtps://user:password@host:465 or smtp://host:587")?;
        let encryption = match (url.scheme(), url.query()) {
            ("smtps", None) => Encryption::Implicit,
            ("smtp", None) => Encryption::StartTls,
            ("smtp", Some("tls=none")) => Encryption::Never,
            _ => anyhow::bail!("must begin with smtps:// or smtp://; only ?tls=none may follow smtp://host:port"),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).context("must name a host")?.to_owned();
        let credentials = url.password().map(|password| {
            let decode = |text: &str| percent_decode(text);
            Credentials::new(decode(url.username()), decode(password))
        });
        ensure!(
            credentials.is_none() || encryption != Encryption::Never,
            "must not send a password unencrypted: remove ?tls=none or the password"
        );
        let default_port = if encryption == Encryption::Implicit { 465 } else { 587 };
        Ok(Self {
            allowed: Allowed::for_operators(),
            host,
            port: url.port().unwrap_or(default_port),
            encryption,
            credentials,
            from: parse_address(from)?,
            recipients: MailDomains::default(),
            send_limit: SEND_LIMIT,
        })
    }

    /// Sends e-mail to these domains only.
    #[must_use]
    pub fn with_recipients(self, recipients: MailDomains) -> Self {
        Self { recipients, ..self }
    }

    /// Replaces the time that a delivery may take.
    #[must_use]
    pub fn with_send_limit(self, send_limit: Duration) -> Self {
        Self { send_limit, ..self }
    }

    /// Sends an e-mail to those of its recipients that the operator permits. The server has 30 s to accept it.
    ///
    /// # Errors
    /// Fails if the server accepted it for none of its recipients, or if that is not known.
    pub async fn send(&self, mail: Mail<'_>) -> Result<AcceptedFor, MailError> {
        let (to, foreign): (Vec<String>, Vec<String>) =
            mail.to.iter().cloned().partition(|address| self.recipients.permits(address));
        if to.is_empty() && !foreign.is_empty() {
            return Err(MailError::NotPermitted(foreign.join(", ")));
        }
        let mail = Mail { to: &to, ..mail };
        let message = self.write_message(mail).map_err(|error| MailError::NotWritable(format!("{error:#}")))?;
        // The library has a limit of the TCP connection only: it would wait forever for a silent server.
        let sending = tokio::time::timeout(self.send_limit, self.send_to_server(&message)).await;
        let (session, refused) = sending.unwrap_or_else(|_| Err(no_answer_within(self.send_limit).into()))?;
        // After the limit, which must not turn an accepted e-mail into one that is sent again.
        session.close().await;
        let foreign = foreign.into_iter().map(RefusedRecipient::of_other_domain);
        let missing: Vec<_> = foreign.chain(refused).collect();
        Ok(if missing.is_empty() { AcceptedFor::All } else { AcceptedFor::AllBut(missing) })
    }

    /// Tries one address of the server after the other, until one may have the e-mail.
    async fn send_to_server(&self, message: &Message) -> Result<(Session, Vec<RefusedRecipient>), MailError> {
        let mut last = Failure::BeforeMessage("the server has no address".to_owned());
        let transport = match self.encryption {
            Encryption::Implicit | Encryption::StartTls => Transport::Encrypted,
            Encryption::Never => Transport::ClearText,
        };
        for address in self.allowed.find_addresses(None, &self.host, transport).await? {
            match self.send_to(address, message).await {
                Err(failure @ Failure::BeforeMessage(_)) => last = failure,
                done => return done.map_err(MailError::from),
            }
        }
        Err(last.into())
    }

    async fn send_to(&self, address: IpAddr, message: &Message) -> Result<(Session, Vec<RefusedRecipient>), Failure> {
        let tls = self.tls().map_err(|error| Failure::BeforeMessage(format!("{error:#}")))?;
        let opening = Session::open(address, self.port, &tls, self.credentials.as_ref());
        let opened = tokio::time::timeout(OPEN_LIMIT, opening).await;
        let mut session = opened.unwrap_or_else(|_| Err(no_answer_within(OPEN_LIMIT)))?;
        let refused = session.hand_over(message).await?;
        Ok((session, refused))
    }

    fn tls(&self) -> anyhow::Result<Tls> {
        let of_host = || TlsParameters::new(self.host.clone()).context("cannot set up TLS");
        Ok(match self.encryption {
            Encryption::Implicit => Tls::Wrapper(of_host()?),
            Encryption::StartTls => Tls::Required(of_host()?),
            Encryption::Never => Tls::None,
        })
    }

    fn write_message(&self, mail: Mail<'_>) -> anyhow::Result<Message> {
        let domain = self.from.email.domain();
        let mut message = Message::builder()
            .from(self.from.clone())
            .message_id(Some(format!("<{}@{domain}>", mail.id)))
            .subject(mail.subject.replace(['\r', '\n'], " "));
        for address in mail.to {
            message = message.to(parse_address(address)?);
        }
        Ok(message.body(mail.text.to_owned())?)
    }
}

/// Checks an address of a recipient, `name@example.com`.
#[must_use]
pub fn is_mail_address(text: &str) -> bool {
    text.len() <= 254 && text.parse::<lettre::Address>().is_ok()
}

fn no_answer_within(limit: Duration) -> Failure {
    Failure::BeforeMessage(format!("no answer within {} s", limit.as_secs()))
}

fn parse_address(text: &str) -> anyhow::Result<Mailbox> {
    text.parse().ok().with_context(|| format!("{text} is not an address of e-mail"))
}

fn percent_decode(text: &str) -> String {
    // The parser of forms decodes percent signs; these signs of a password must stay what they are.
    let escaped = text.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    url::form_urlencoded::parse(escaped.as_bytes()).map(|(name, _)| name.into_owned()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_strictly() {
        let port = |server: &str| Mailer::new(server, "cronbox <c@example.com>").map(|mailer| mailer.port).ok();
        assert_eq!(port("smtps://mail.example"), Some(465));
        assert_eq!(port("smtp://user:p%40+s@mail.example"), Some(587));
        assert_eq!(port("smtp://127.0.0.1:2525?tls=none"), Some(2525));
        for server in ["mail.example:25", "http://mail.example", "smtp://", "smtp://u:p@h?tls=none", "smtp://h?tls=no"]
        {
            assert_eq!(port(server), None, "{server}");
        }
        assert!(Mailer::new("smtps://mail.example", "no address").is_err());
        assert_eq!(percent_decode("p%40+s=1&x"), "p@+s=1&x");
    }

    #[test]
    fn recipients_are_of_listed_domains() {
        let domains: MailDomains = "Example.com, *.corp.example,".parse().unwrap();
        for address in ["a@example.com", "a@EXAMPLE.com", "\"a@evil\"@example.com", "a@mail.corp.example"] {
            assert!(domains.permits(address), "{address}");
        }
        for address in
            ["a@mail.example.com", "a@corp.example", "a@example.com@evil.example", "a@[192.0.2.1]", "example.com"]
        {
            assert!(!domains.permits(address), "{address}");
        }
        assert_eq!(domains.to_string(), "example.com, *.corp.example");
        assert!(MailDomains::default().permits("a@anywhere.example"));
        assert_eq!("".parse::<MailDomains>().unwrap(), MailDomains::default());
        assert!("a b".parse::<MailDomains>().is_err());
    }
}
