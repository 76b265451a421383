//! Step 7 of 7: the dialogue with one address of a mail server, about one e-mail.
//!
//! The transport of the library ends at the first recipient that the server refuses, and does not say whether the server
//! already had the e-mail when the connection failed.

use std::error::Error as _;
use std::net::IpAddr;
use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Tls};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::{Address, Message};

use super::recipients::{RefusedRecipient, in_one_line};

/// How long the server may take to answer that the connection ends.
const QUIT_LIMIT: Duration = Duration::from_secs(2);
/// How many characters of an answer are kept.
const ANSWER_LIMIT: usize = 300;

/// A connection that is ready for an e-mail.
pub(super) struct Session(AsyncSmtpConnection);

/// Why the server did not accept an e-mail, in words.
pub(super) enum Failure {
    /// This address did not get the e-mail, so the next address may.
    BeforeMessage(String),
    /// The server refuses the e-mail or the sender, or it may have the e-mail: a later attempt may succeed.
    Temporary(String),
    /// The server has none of the recipients.
    Permanent(String),
}

impl Session {
    /// Connects, encrypts, and signs in.
    pub(super) async fn open(
        address: IpAddr,
        port: u16,
        tls: &Tls,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Failure> {
        let hello = ClientId::default();
        let implicit = match tls {
            Tls::Wrapper(parameters) => Some(parameters.clone()),
            _ => None,
        };
        let mut connection = AsyncSmtpConnection::connect_tokio1((address, port), None, &hello, implicit, None).await?;
        if let Tls::Required(parameters) = tls {
            connection.starttls(parameters.clone(), &hello).await?;
        }
        if let Some(credentials) = credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(Self(connection))
    }

    /// Hands over an e-mail. The server accepts it for all recipients but those that are returned.
    pub(super) async fn hand_over(&mut self, message: &Message) -> Result<Vec<RefusedRecipient>, Failure> {
        let text = message.formatted();
        let parameters = self.list_parameters(message, &text)?;
        self.0.command(Mail::new(message.envelope().from().cloned(), parameters)).await?;
        let refused = self.name_recipients(message.envelope().to()).await?;
        self.0.command(Data).await?;
        // From here on the server may have the e-mail although no answer arrives: another address must not get it now.
        self.0.message(&text).await.map_err(|error| Failure::Temporary(in_words(&error)))?;
        Ok(refused)
    }

    /// Ends the connection. The e-mail is accepted already, so it does not matter whether the server answers.
    pub(super) async fn close(mut self) {
        tokio::time::timeout(QUIT_LIMIT, self.0.quit()).await.ok();
    }

    /// What the server has to support for this e-mail.
    fn list_parameters(&self, message: &Message, text: &[u8]) -> Result<Vec<MailParameter>, Failure> {
        let envelope = message.envelope();
        let has_other_letters = |address: &Address| !address.to_string().is_ascii();
        let mut parameters = Vec::new();
        if envelope.to().iter().chain(envelope.from()).any(has_other_letters) {
            self.require(Extension::SmtpUtfEight)?;
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !text.is_ascii() {
            self.require(Extension::EightBitMime)?;
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        Ok(parameters)
    }

    fn require(&self, extension: Extension) -> Result<(), Failure> {
        if self.0.server_info().supports_feature(extension) {
            return Ok(());
        }
        Err(Failure::Temporary(format!("the server does not support {extension}, which the e-mail needs")))
    }

    /// Names the recipients; returns those that the server refuses.
    async fn name_recipients(&mut self, recipients: &[Address]) -> Result<Vec<RefusedRecipient>, Failure> {
        let mut refused = Vec::new();
        for recipient in recipients {
            match self.0.command(Rcpt::new(recipient.clone(), Vec::new())).await {
                Ok(_) => {}
                // An answer is about this recipient; a connection that fails is about all.
                Err(error) if error.status().is_some() => refused.push(refused_recipient(recipient, &error)),
                Err(error) => return Err(error.into()),
            }
        }
        match (refused.len() < recipients.len(), refused.iter().all(|one| one.is_final)) {
            (true, _) => Ok(refused),
            (false, true) => Err(Failure::Permanent(in_one_line(&refused))),
            (false, false) => Err(Failure::Temporary(in_one_line(&refused))),
        }
    }
}

fn refused_recipient(recipient: &Address, error: &Error) -> RefusedRecipient {
    RefusedRecipient { address: recipient.to_string(), words: in_words(error), is_final: has_no_mailbox(error) }
}

impl From<Error> for Failure {
    /// Of a step before the e-mail. What one address refuses permanently, for example a password, the others would refuse.
    fn from(error: Error) -> Self {
        if error.is_permanent() { Self::Temporary(in_words(&error)) } else { Self::BeforeMessage(in_words(&error)) }
    }
}

/// Whether the answer says that the recipient does not exist. Servers answer with the same codes by policy, too, for
/// example because the sender has not signed in: RFC 3463 calls these 5.7, and an operator can end them.
fn has_no_mailbox(error: &Error) -> bool {
    let names_mailbox = error.status().is_some_and(|code| matches!(u16::from(code), 550 | 551 | 553));
    let is_policy = error.source().is_some_and(|answer| answer.to_string().starts_with("5.7."));
    names_mailbox && !is_policy
}

/// The code and the text of the answer, without the characters that the database refuses.
fn in_words(error: &Error) -> String {
    error.to_string().chars().filter(|character| *character != '\0').take(ANSWER_LIMIT).collect()
}
