//! Step 7 of 7: the ping that an outside service waits for. If it stops, that service raises the alarm: no alarm of ours
//! says that all of cronbox is down.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use egress::allowed::Allowed;
use egress::{Client, Departing, Departure, Outgoing};
use hyper::Method;
use hyper::header::HeaderMap;
use url::Url;

use crate::operator_url::{SERVICE, is_loopback, parse_operator_url};

/// How long a ping may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where the pings go. No derived `Debug`: who knows the URL can ping in our place.
pub(crate) struct Heartbeat {
    url: Url,
    client: Client,
}

impl Heartbeat {
    /// Prepares the pings of a URL.
    ///
    /// # Errors
    /// Fails if no request may be sent there. The error never repeats the URL.
    pub(crate) fn new(url: &str, is_http_permitted: bool) -> anyhow::Result<Self> {
        let client = Client::new(Allowed::for_operators())?;
        let url = parse_operator_url(url, |url| is_http_permitted || is_loopback(url))
            .and_then(|url| client.allowed().check_url(&url, SERVICE).map(|()| url).map_err(anyhow::Error::from))
            .context("CRONBOX_HEARTBEAT_URL")?;
        Ok(Self { url, client })
    }

    /// Sends a ping: a GET that must be answered with 2xx within 10 s. No redirect is followed.
    ///
    /// # Errors
    /// Fails for any other answer, and without one. The error never repeats the URL.
    pub(crate) async fn send_ping(&self) -> anyhow::Result<()> {
        let body = Departing::new("", &Departure::default());
        let (method, url, headers) = (Method::GET, &self.url, HeaderMap::new());
        let request = Outgoing { tenant: SERVICE, method, url, may_use_http: false, headers, body };
        let answer = tokio::time::timeout(TIMEOUT, self.client.send(request)).await;
        let answer = answer.with_context(|| format!("no answer within {} s", TIMEOUT.as_secs()))??;
        ensure!(answer.status().is_success(), "the receiver answered {}", answer.status());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_and_never_repeated() {
        let refused = |url: &str| Heartbeat::new(url, false).err().map(|error| format!("{error:#}"));
        for permitted in ["https://hc.example/secret", "http://127.0.0.1:8000/secret", "https://10.1.2.3/secret"] {
            assert_eq!(refused(permitted), None, "{permitted}");
        }
        assert!(Heartbeat::new("http://hc.example/secret", true).is_ok());
        for wrong in ["http://hc.example/secret", "https://a:secret@hc.example/", "secret", "https://169.254.169.254/"]
        {
            let error = refused(wrong).unwrap();
            assert!(error.starts_with("CRONBOX_HEARTBEAT_URL: ") && !error.contains("secret"), "{error}");
        }
    }
}
