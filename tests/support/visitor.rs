//! A visitor of the console, with the cookie of a session, as a browser sends it.

use regex::Regex;
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

/// A form of a page, as the browser has it: sent again, it is the same form.
pub struct PageForm {
    path: String,
    /// The `Idempotency-Key` in its start tag.
    key: String,
    /// Its hidden fields, as a browser encodes them.
    hidden: String,
}

impl Visitor {
    /// Signs in, as the form of the console does.
    ///
    /// # Panics
    /// Panics if the key is refused.
    pub async fn sign_in(base: &str, key: &str) -> Self {
        // The answer to the form is a redirection, and has the cookie.
        let http = create_client();
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
        let http = create_client();
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
        send_request(self.request_act(path, fields.to_owned())).await
    }

    fn request_act(&self, path: &str, fields: String) -> RequestBuilder {
        let form = self.http.post(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let form = form.header("sec-fetch-site", "same-origin").header("hx-request", "true");
        form.header(CONTENT_TYPE, FORM).body(fields)
    }

    /// The form of a page that is sent to `path`.
    ///
    /// # Panics
    /// Panics if the page has no such form.
    pub async fn read_form(&self, page: &str, path: &str) -> PageForm {
        PageForm::of_page(&self.read_page(page).await, path)
    }

    /// Sends a form of a page with its hidden fields and with these.
    pub async fn send_page_form(&self, form: &PageForm, fields: &str) -> Answer {
        let sent = [form.hidden.as_str(), fields].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let request = self.request_act(&form.path, sent.join("&"));
        send_request(request.header("idempotency-key", &form.key)).await
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

impl PageForm {
    fn of_page(html: &str, path: &str) -> Self {
        let form = html.split_once(&format!("hx-post=\"{path}\""));
        let (before, rest) = form.unwrap_or_else(|| panic!("no form for {path}: {html}"));
        let tag = before.rsplit('<').next().unwrap_or_default();
        let key = tag.split_once("\"Idempotency-Key\": \"").and_then(|(_, rest)| rest.split_once('"'));
        let (key, _) = key.unwrap_or_else(|| panic!("the form for {path} has no key: <{tag}"));
        let fields = rest.split_once("</form>").map_or(rest, |(fields, _)| fields);
        Self { path: path.to_owned(), key: key.to_owned(), hidden: hidden_fields(fields) }
    }
}

/// A client without a connection to the app.
fn create_client() -> Client {
    // The app ends a connection that is idle for 10 s: none is used again when that may happen at the same moment.
    let http = Client::builder().no_proxy().tls_certs_only([]).pool_idle_timeout(std::time::Duration::from_secs(3));
    http.redirect(Policy::none()).build().expect("a client")
}

/// The hidden fields in the HTML of a form.
fn hidden_fields(html: &str) -> String {
    let hidden =
        Regex::new(r#"<input type="hidden"(?: id="[^"]*")? name="([^"]*)" value="([^"]*)""#).expect("a pattern");
    let fields = hidden.captures_iter(html).map(|found| format!("{}={}", encode(&found[1]), encode(&found[2])));
    fields.collect::<Vec<_>>().join("&")
}

/// A text of HTML, as a form sends it.
fn encode(text: &str) -> String {
    let marks = [("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")];
    let text = marks.iter().fold(text.to_owned(), |text, (mark, plain)| text.replace(mark, plain));
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
