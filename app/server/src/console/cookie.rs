//! The cookie of a session. By https it is bound to the host and never sent by http; on this machine it has a plain name,
//! because a browser refuses the other one there.

use std::net::IpAddr;

use access::sessions::{LASTS, SessionText};
use axum::http::{HeaderMap, HeaderValue, header};

use crate::api::request::client_address::came_by_https;
use crate::api::request::error::Error;

/// By https.
const SECURE_NAME: &str = "__Host-cronbox";
/// By http, on this machine.
const PLAIN_NAME: &str = "cronbox";

/// How a browser reaches the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Https,
    /// By http, from this machine.
    Loopback,
    /// By http, from elsewhere: no visitor can sign in.
    Open,
}

impl Transport {
    pub(super) fn of_request(headers: &HeaderMap) -> Self {
        if came_by_https(headers) {
            return Self::Https;
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if is_loopback(host) { Self::Loopback } else { Self::Open }
    }

    /// Returns the name of the cookie.
    ///
    /// # Errors
    /// Returns 403 if the browser would send it by http through a network.
    pub(super) fn cookie_name(self) -> Result<&'static str, Error> {
        match self {
            Self::Https => Ok(SECURE_NAME),
            Self::Loopback => Ok(PLAIN_NAME),
            Self::Open => {
                Err(Error::forbidden("sign in by https: a session that is sent by http can be read on its way"))
            }
        }
    }

    /// The value of `Set-Cookie` for a cookie of this name.
    pub(super) fn set(self, name: &str, value: &str, seconds: i64) -> Option<HeaderValue> {
        let secure = if self == Self::Https { "; Secure" } else { "" };
        let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::from_str(&cookie).ok()
    }

    /// The cookie that begins a session.
    ///
    /// # Errors
    /// As [`Transport::cookie_name`].
    pub(super) fn begin(self, text: &SessionText) -> Result<Option<HeaderValue>, Error> {
        Ok(self.set(self.cookie_name()?, text.reveal_text(), LASTS.num_seconds()))
    }

    /// The cookie that ends a session.
    pub(super) fn end(self) -> Option<HeaderValue> {
        self.cookie_name().ok().and_then(|name| self.set(name, "", 0))
    }
}

/// The text of the session in a request.
pub(super) fn find_session(headers: &HeaderMap) -> Option<&str> {
    let name = Transport::of_request(headers).cookie_name().ok()?;
    find_cookie(headers, name)
}

/// The value of a cookie.
pub(super) fn find_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = sent.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(sent, _)| *sent == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Whether a `Host` names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn sessions_go_by_https_or_stay_on_this_machine() {
        let of = |all: &[(&'static str, &'static str)]| Transport::of_request(&headers(all));
        assert_eq!(of(&[("host", "cron.example"), ("x-forwarded-proto", "https")]), Transport::Https);
        for here in ["localhost:8080", "127.0.0.1", "[::1]:8080"] {
            assert_eq!(of(&[("host", here)]), Transport::Loopback, "{here}");
        }
        for elsewhere in ["cron.example", "localhost.example:80", "10.0.0.7:8080", ""] {
            assert_eq!(of(&[("host", elsewhere)]), Transport::Open, "{elsewhere}");
        }
        assert!(Transport::Open.cookie_name().is_err() && Transport::Open.end().is_none());
    }

    #[test]
    fn a_cookie_of_https_is_not_taken_by_http() {
        let by_http = headers(&[("host", "localhost"), ("cookie", "a=1; __Host-cronbox=stolen")]);
        assert_eq!(find_session(&by_http), None);
        let plain = headers(&[("host", "localhost"), ("cookie", "a=1;cronbox=text")]);
        assert_eq!(find_session(&plain), Some("text"));
        let by_https = headers(&[
            ("host", "cron.example"),
            ("x-forwarded-proto", "https"),
            ("cookie", "cronbox=x; __Host-cronbox=y"),
        ]);
        assert_eq!(find_session(&by_https), Some("y"));
        let set = Transport::Https.set(SECURE_NAME, "y", 9).unwrap();
        assert_eq!(set, "__Host-cronbox=y; Path=/; Max-Age=9; HttpOnly; SameSite=Lax; Secure");
    }
}
