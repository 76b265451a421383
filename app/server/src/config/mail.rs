//! The settings of notifications: the mail server, and where people reach the service.

use anyhow::Context as _;
use clap::Args;
use egress::mail::{MailDomains, Mailer};
use url::Url;

/// How notifications are sent.
#[derive(Args, Clone, Default)]
pub struct MailSettings {
    /// The mail server: `smtps://user:password@host:465`, `smtp://host:587` (STARTTLS), or `smtp://host:25?tls=none`
    #[arg(long, help_heading = "Notifications", env = "CRONBOX_SMTP_URL", hide_env_values = true)]
    pub smtp_url: Option<String>,
    /// The sender of e-mails, for example `cronbox <cronbox@example.com>`
    #[arg(long, help_heading = "Notifications", env = "CRONBOX_MAIL_FROM", value_name = "ADDRESS")]
    pub mail_from: Option<String>,
    /// The domains to which e-mail may go, for example `example.com,*.example.org`; none = any
    #[arg(long, help_heading = "Notifications", env = "CRONBOX_MAIL_RECIPIENTS", value_name = "DOMAINS")]
    pub mail_recipients: Option<MailDomains>,
    /// Where people reach this service, for the links in messages, for example `https://cronbox.example.com`
    #[arg(long, help_heading = "Notifications", env = "CRONBOX_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<Url>,
}

impl MailSettings {
    /// The sender of e-mails; `None`: no mail server is set.
    ///
    /// # Errors
    /// Fails if a setting is not valid, or if the sender is missing. The text contains no password.
    pub fn mailer(&self) -> anyhow::Result<Option<Mailer>> {
        let Some(server) = &self.smtp_url else { return Ok(None) };
        let from = self.mail_from.as_deref().context("CRONBOX_SMTP_URL needs CRONBOX_MAIL_FROM")?;
        let mailer = Mailer::new(server, from).context("CRONBOX_SMTP_URL or CRONBOX_MAIL_FROM cannot be used")?;
        Ok(Some(mailer.with_recipients(self.mail_recipients.clone().unwrap_or_default())))
    }
}
