//! What a browser does with the pages of a provider and of the console: cookies, redirects and forms.

use std::collections::BTreeMap;

use regex::Regex;
use reqwest::{Client, Method, RequestBuilder, Response, Url, header};
use tests::Canaille;

use crate::with_form;

/// A browser of one person. It keeps cookies by host.
pub(crate) struct Browser {
    client: Client,
    cookies: BTreeMap<(String, String), String>,
}

impl Browser {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, cookies: BTreeMap::new() }
    }

    pub(crate) async fn get(&mut self, url: Url) -> Response {
        self.send(self.client.get(url)).await
    }

    /// A write, as the script of a page of this site sends it.
    pub(crate) async fn write(&mut self, url: Url, fields: &[(&str, &str)]) -> Response {
        let request = self.client.request(Method::POST, url);
        let request = request.header("sec-fetch-site", "same-origin").header("hx-request", "true");
        self.send(with_form(request, fields)).await
    }

    /// Follows redirects and fills the forms of Canaille, and answers its question with `accept` or `deny`. Returns the
    /// address to which Canaille leads back, which begins with `back`; it is not opened.
    pub(crate) async fn sign_in(&mut self, first: Url, back: &str, name: &str, consent: &str) -> Url {
        let mut response = self.get(first).await;
        for _ in 0..20 {
            if let Some(next) = location_of(&response) {
                if next.as_str().starts_with(back) {
                    return next;
                }
                response = self.get(next).await;
                continue;
            }
            assert_eq!(response.status(), 200, "{}", response.url());
            response = self.fill_form(response, name, consent).await;
        }
        panic!("Canaille has no end: {}", response.url());
    }

    async fn fill_form(&mut self, page: Response, name: &str, consent: &str) -> Response {
        let (url, html) = (page.url().clone(), page.text().await.unwrap());
        let token = Regex::new(r#"name="csrf_token"[^>]*value="([^"]+)""#).unwrap();
        let token = token.captures(&html).map_or("", |found| found.get(1).unwrap().as_str());
        let (field, value) = if html.contains(r#"value="accept""#) {
            ("answer", consent)
        } else if html.contains(r#"name="password""#) {
            ("password", Canaille::PASSWORD)
        } else {
            ("login", name)
        };
        let request = self.client.post(url.clone()).header(header::REFERER, url.as_str());
        self.send(with_form(request, &[("csrf_token", token), (field, value)])).await
    }

    async fn send(&mut self, request: RequestBuilder) -> Response {
        let request = request.build().unwrap();
        let host = request.url().host_str().unwrap().to_owned();
        let own = self.cookies.iter().filter(|((of, _), _)| *of == host);
        let cookies: Vec<String> = own.map(|((_, name), value)| format!("{name}={value}")).collect();
        let request = RequestBuilder::from_parts(self.client.clone(), request);
        let response = request.header(header::COOKIE, cookies.join("; ")).send().await.unwrap();
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
            let (value, attributes) = rest.split_once(';').unwrap_or((rest, ""));
            let key = (host.clone(), name.to_owned());
            match attributes.contains("Max-Age=0") {
                true => self.cookies.remove(&key),
                false => self.cookies.insert(key, value.to_owned()),
            };
        }
        response
    }

    /// A cookie by its name.
    pub(crate) fn cookie(&self, host: &str, name: &str) -> Option<&str> {
        self.cookies.get(&(host.to_owned(), name.to_owned())).map(String::as_str)
    }

    /// Replaces a cookie, as its person could; `None` removes it.
    pub(crate) fn set_cookie(&mut self, host: &str, name: &str, value: Option<&str>) {
        let key = (host.to_owned(), name.to_owned());
        match value {
            Some(value) => self.cookies.insert(key, value.to_owned()),
            None => self.cookies.remove(&key),
        };
    }
}

/// Where an answer leads.
pub(crate) fn location_of(response: &Response) -> Option<Url> {
    let next = response.headers().get(header::LOCATION)?;
    Some(response.url().join(next.to_str().unwrap()).unwrap())
}
