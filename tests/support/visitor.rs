//! A visitor of the console, with the cookie of a session, as a browser sends it.

use reqwest::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};

use crate::{Answer, send_request};

/// The media type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// A visitor who has signed in with a key.
pub struct Visitor {
    base: String,
    cookie: String,
    http: Client,
}

impl Visitor {
    /// Signs in, as the form of the console does.
    ///
    /// # Panics
    /// Panics if the key is refused.
    pub async fn sign_in(base: &str, key: &str) -> Self {
        // The answer to the form is a redirection, and has the cookie.
        let http = Client::builder().no_proxy().tls_certs_only([]).redirect(Policy::none());
        let http = http.build().expect("a client");
        let form = http.post(format!("{base}/sign-in")).header("sec-fetch-site", "same-origin");
        let form = form.header(CONTENT_TYPE, FORM).body(format!("key={key}"));
        let answer = send_request(form).await.expect(303);
        let cookie = answer.headers[SET_COOKIE].to_str().expect("a cookie");
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Self { base: base.to_owned(), cookie, http }
    }

    /// Has signed in before: the cookie of the session has this text.
    ///
    /// # Panics
    /// Panics if there can be no client.
    #[must_use]
    pub fn of_session(base: &str, text: &str) -> Self {
        let http = Client::builder().no_proxy().tls_certs_only([]).redirect(Policy::none()).build().expect("a client");
        Self { base: base.to_owned(), cookie: format!("cronbox={text}"), http }
    }

    /// The text of the session in the cookie.
    #[must_use]
    pub fn session(&self) -> &str {
        self.cookie.split_once('=').map_or("", |(_, text)| text)
    }

    /// A request for a page. Without its session it would be led to the sign-in.
    pub fn request_page(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie)
    }

    /// Sends a form, as the script of the console does.
    pub async fn send_form(&self, path: &str, fields: &str) -> Answer {
        let form = self.http.post(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let form = form.header("sec-fetch-site", "same-origin").header("hx-request", "true");
        send_request(form.header(CONTENT_TYPE, FORM).body(fields.to_owned())).await
    }

    /// The HTML of a page.
    ///
    /// # Panics
    /// Panics if the page cannot be shown.
    pub async fn read_page(&self, path: &str) -> String {
        let answer: Answer = send_request(self.request_page(path)).await;
        answer.expect(200).text
    }
}
