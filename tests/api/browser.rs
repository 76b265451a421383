//! What each answer permits a browser and a cache to do.

use access::sessions::{MOST_LINKS_OF_A_KEY, MOST_OF_A_HOLDER};
use regex::Regex;
use reqwest::Method;
use serde_json::json;
use tests::{Answer, Api, Story, Visitor, send_request};

/// Of answers for programs.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
const POLICY_OF_PAGES: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                               frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The value of a header; empty if the answer does not have it.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[track_caller]
fn assert_protected(answer: &Answer, cache_control: &str, of: &str) {
    let policy = if of.starts_with('/') && !of.starts_with("/api/") { POLICY_OF_PAGES } else { POLICY };
    assert_eq!(header(answer, "content-security-policy"), policy, "{of}");
    assert_eq!(header(answer, "x-content-type-options"), "nosniff", "{of}");
    assert_eq!(header(answer, "referrer-policy"), "no-referrer", "{of}");
    assert_eq!(header(answer, "x-frame-options"), "DENY", "{of}");
    assert_eq!(header(answer, "cache-control"), cache_control, "{of}");
    let vary = if cache_control == "no-store" { "" } else { "X-API-Key, Authorization, Cookie" };
    assert_eq!(header(answer, "vary"), vary, "{of}");
    assert_eq!((header(answer, "set-cookie"), header(answer, "access-control-allow-origin")), ("", ""), "{of}");
}

#[tokio::test]
async fn every_answer_restricts_browsers_and_caches() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let (stranger, editor) = (Api::without_key(s.url()), s.editor());
    for path in ["/docs/", "/docs/swagger-ui-bundle.js", "/openapi.json", "/healthz", "/metrics", "/nowhere"] {
        assert_protected(&stranger.get(path).await, "no-store", path);
    }
    let workflow = format!("/api/v1/workflows/{id}");
    for path in [workflow.as_str(), "/api/v1/runs", "/api/v1/workflows/999999", "/api/v1/runs?limit=x"] {
        assert_protected(&editor.get(path).await, "private, no-cache", path);
        assert_protected(&stranger.get(path).await.expect(401), "private, no-cache", path);
    }
    assert!(header(&editor.get(&workflow).await.expect(200), "etag").starts_with("\"1-"));
    assert_protected(&editor.patch(&workflow, &json!({"description": "d"})).await.expect(200), "no-store", "an edit");
    assert_protected(&send_request(editor.request(Method::OPTIONS, &workflow)).await, "no-store", "a preflight");
    // What is shown once.
    let team = s.admin().post("/api/v1/teams", &json!({"name": "secretive"})).await.expect(201);
    assert_protected(&team, "no-store", "a signing secret");
    let key = s.admin().post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.expect(201);
    assert_protected(&key, "no-store", "a key");
    s.publish().await;
    s.end().await;
}

/// A browser that came by https does not come by http again.
#[tokio::test]
async fn https_is_kept() {
    let s = Story::today().await;
    for (sent, expected) in
        [("https", "max-age=31536000"), ("HTTPS, http", "max-age=31536000"), ("http", ""), ("http, https", "")]
    {
        let request = Api::without_key(s.url()).request(Method::GET, "/docs/").header("x-forwarded-proto", sent);
        assert_eq!(header(&send_request(request).await, "strict-transport-security"), expected, "{sent}");
    }
    assert_eq!(header(&s.editor().get("/api/v1/runs").await, "strict-transport-security"), "");
    s.end().await;
}

/// The page of the description needs nothing that its policy refuses, and tells no other server that it was opened.
#[tokio::test]
async fn the_docs_page_has_no_inline_code() {
    let s = Story::today().await;
    let page = Api::without_key(s.url()).get("/docs/").await.expect(200).text;
    let tag = Regex::new(r"<(\w+)([^>]*)>([^<]*)").unwrap();
    let inline = Regex::new(r"\s(style|on\w+)=|javascript:").unwrap();
    let mut scripts = 0;
    for found in tag.captures_iter(&page) {
        let (name, attributes, content) = (&found[1], &found[2], found[3].trim());
        assert!(!inline.is_match(attributes), "{}", &found[0]);
        assert!(name != "style", "{}", &found[0]);
        if name == "script" {
            assert!(attributes.contains("src=\"./") && content.is_empty(), "{}", &found[0]);
            scripts += 1;
        }
    }
    assert!(scripts >= 3, "{page}");
    let settings = Api::without_key(s.url()).get("/docs/swagger-initializer.js").await.expect(200).text;
    assert!(settings.contains("\"validatorUrl\": \"none\"") && settings.contains("/openapi.json"), "{settings}");
    assert!(!settings.contains("http://") && !settings.contains("https://"), "{settings}");
    s.end().await;
}

/// Invented cookies count as unknown keys of their address, and invented links apart: a flood of them reads no database.
#[tokio::test]
async fn invented_sessions_are_limited_by_address() {
    // The next try comes after a minute.
    let s = Story::with_app(|config| config.bad_keys_per_min = 1).await;
    let stranger = Api::without_key(s.url());
    let page = async |nth: usize| {
        send_request(stranger.request(Method::GET, "/workflows").header("cookie", format!("cronbox=invented-{nth}")))
            .await
    };
    let answer = page(0).await.expect(200);
    assert!(answer.text.contains("Sign in"), "it is led to the sign-in: {}", answer.text);
    assert_eq!(page(1).await.status, 429);
    assert_eq!(page(0).await.status, 200, "what is known to be invented reads nothing");
    // Links have as many tries of their own.
    for status in [401, 429] {
        let link = stranger.request(Method::POST, "/sign-in/link").header("sec-fetch-site", "same-origin");
        let link = link.header("content-type", "application/x-www-form-urlencoded").body("link=invented");
        assert_eq!(send_request(link).await.status, status);
    }
    s.end().await;
}

/// Each browser of an office has a cookie that has expired, every morning. Of sessions that it has ended itself, a key can make any
/// number, and each of their cookies would read the database.
#[tokio::test]
async fn only_expired_sessions_take_no_try() {
    let s = Story::with_app(|config| config.bad_keys_per_min = 1).await;
    let expired = [Visitor::sign_in(s.url(), &s.keys.editor).await, Visitor::sign_in(s.url(), &s.keys.editor).await];
    s.execute("UPDATE console_sessions SET expires_on = created_on").await;
    let ended = [Visitor::sign_in(s.url(), &s.keys.editor).await, Visitor::sign_in(s.url(), &s.keys.editor).await];
    for visitor in &ended {
        visitor.send_form("/sign-out", "").await.expect(200);
    }
    for (visitor, status) in expired.iter().chain(&ended).zip([303, 303, 303, 429]) {
        send_request(visitor.request_page("/workflows")).await.expect(status);
    }
    s.end().await;
}

/// A thief who tries keys, stolen cookies or used links leaves a trace of each, and people who sign out or go home leave none.
#[tokio::test]
async fn failed_sign_ins_are_in_the_audit_log() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let stranger = Api::without_key(s.url());
    let sign_in = async |path: &str, form: String| {
        let request = stranger.request(Method::POST, path).header("sec-fetch-site", "same-origin");
        send_request(request.header("content-type", "application/x-www-form-urlencoded").body(form)).await
    };
    sign_in("/sign-in", "key=invented".to_owned()).await.expect(401);

    s.now_is("2026-03-02T09:01:00Z").await;
    let led_to_sign_in = async |visitor: &Visitor| send_request(visitor.request_page("/workflows")).await.expect(303);
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let session = s.table("SELECT id::text FROM console_sessions").await;
    s.admin().post_empty(&format!("/api/v1/sessions/{session}:end")).await.expect(204);
    led_to_sign_in(&visitor).await;
    let signed_out = Visitor::sign_in(s.url(), &s.keys.editor).await;
    signed_out.send_form("/sign-out", "").await.expect(200);
    led_to_sign_in(&signed_out).await;
    let stays = Visitor::sign_in(s.url(), &s.keys.editor).await;

    s.now_is("2026-03-02T09:02:00Z").await;
    let made = s.editor().post_empty("/api/v1/sign-in-links").await.expect(201).json;
    let (_, link) = made["path"].as_str().unwrap().split_once("link=").unwrap();
    for used in [false, true] {
        let answer = sign_in("/sign-in/link", format!("link={link}")).await;
        assert_eq!(answer.status == 401, used, "{}", answer.text);
    }

    s.now_is("2026-03-02T21:01:00Z").await;
    led_to_sign_in(&stays).await;
    s.now_is("2026-03-02T21:03:00Z").await;
    s.job("audit").await;
    let entries = "SELECT concat_ws(' ', at AT TIME ZONE 'UTC', source_address, after) FROM audit_log
                    WHERE verb = 'login.failed' ORDER BY at";
    let expected = ["09:00", "09:01", "09:02"].map(|at| format!("2026-03-02 {at}:00 127.0.0.1 {{\"failures\": 1}}"));
    assert_eq!(s.table(entries).await, expected.join("\n"));
    s.end().await;
}

/// A document for programs would take the place of the page, or of the form that was sent.
#[tokio::test]
async fn refused_visitors_get_pages() {
    let s = Story::with_app(|config| config.bad_keys_per_min = 1).await;
    let stranger = Api::without_key(s.url());
    let visit = async |method: Method, site: &str, nth: usize| {
        let request = stranger.request(method, "/workflows/1/settings").header("hx-request", "true");
        send_request(request.header("sec-fetch-site", site).header("cookie", format!("cronbox=invented-{nth}"))).await
    };
    let first = visit(Method::POST, "same-origin", 0).await.expect(401);
    assert!(header(&first, "hx-redirect").starts_with("/sign-in"));

    let page = visit(Method::GET, "same-origin", 1).await.expect(429);
    assert!(page.text.contains("<h1>Too many requests</h1>"), "{}", page.text);
    let limited = visit(Method::POST, "same-origin", 2).await.expect(429);
    let foreign = visit(Method::POST, "cross-site", 0).await.expect(403);
    for (answer, code) in [(&limited, "rate_limited"), (&foreign, "foreign_page")] {
        assert_eq!(header(answer, "hx-retarget"), "#notice");
        assert!(answer.text.contains(&format!("<code>{code}</code>")), "{}", answer.text);
    }
    for answer in [&page, &limited] {
        assert_eq!(header(answer, "content-type"), "text/html; charset=utf-8");
        assert_ne!(header(answer, "retry-after"), "");
    }
    s.end().await;
}

/// A person who shares the address of a flood, for example behind a proxy, goes on.
#[tokio::test]
async fn sessions_outlive_a_flood_of_invented_ones() {
    let mut s = Story::today().await;
    let visitor = Visitor::sign_in(s.url(), &s.keys.editor).await;
    // The next try comes after a minute.
    let flooded = s.another_app_with(|config| config.bad_keys_per_min = 1).await.unwrap();
    let visitor = Visitor::of_session(&flooded, visitor.session());
    for nth in 0..2 {
        let invented = Api::without_key(&flooded).request(Method::GET, "/workflows");
        let answer = send_request(invented.header("cookie", format!("cronbox=invented-{nth}"))).await;
        assert_eq!(answer.status, if nth < 1 { 200 } else { 429 });
    }
    assert!(visitor.read_page("/workflows").await.contains("Workflows"));
    s.end().await;
}

/// Each instance reads all open sessions into memory while an address invents cookies, and a key of one team can sign in again and again.
#[tokio::test]
async fn sessions_of_a_key_are_bounded() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let oldest = Visitor::sign_in(s.url(), &s.keys.editor).await;
    let of_another = Visitor::sign_in(s.url(), &s.keys.admin).await;
    s.now_is("2026-03-02T09:01:00Z").await;
    let mut newer = Vec::new();
    for _ in 0..MOST_OF_A_HOLDER {
        newer.push(Visitor::sign_in(s.url(), &s.keys.editor).await);
    }
    let open = "SELECT count(*) FROM console_sessions WHERE ended_on IS NULL AND key_id = \
                (SELECT key_id FROM console_sessions ORDER BY created_on DESC LIMIT 1)";
    assert_eq!(s.count(open).await, MOST_OF_A_HOLDER);
    let led = send_request(oldest.request_page("/workflows")).await.expect(303);
    assert_eq!(header(&led, "location"), "/sign-in?next=%2Fworkflows");
    for visitor in [&newer[0], &of_another] {
        assert!(visitor.read_page("/workflows").await.contains("Workflows"));
    }
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE verb = 'sign-out'").await, 1);
    s.now_is("2026-03-02T09:04:00Z").await;
    s.job("audit").await;
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE verb = 'login.failed'").await, 0);
    s.end().await;
}

/// A key that only reads could fill the table: nothing but their end removed links that no browser uses.
#[tokio::test]
async fn links_of_a_key_are_bounded() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let make_link = async |api: &Api| {
        let made = api.post_empty("/api/v1/sign-in-links").await.expect(201).json;
        made["path"].as_str().unwrap().split_once('?').unwrap().1.to_owned()
    };
    let (oldest, of_another) = (make_link(&s.editor()).await, make_link(&s.admin()).await);
    s.now_is("2026-03-02T09:01:00Z").await;
    let mut newer = Vec::new();
    for _ in 0..MOST_LINKS_OF_A_KEY {
        newer.push(make_link(&s.editor()).await);
    }
    assert_eq!(s.count("SELECT count(*) FROM sign_in_links").await, MOST_LINKS_OF_A_KEY + 1);
    let stranger = Api::without_key(s.url());
    for (link, is_over) in [(oldest, true), (newer.swap_remove(0), false), (of_another, false)] {
        let form = stranger.request(Method::POST, "/sign-in/link").header("sec-fetch-site", "same-origin");
        let form = form.header("content-type", "application/x-www-form-urlencoded").body(link);
        let answer = send_request(form).await;
        assert_eq!(answer.status == 401, is_over, "{}", answer.text);
    }
    s.scheduler_key().post_empty("/api/v1/sign-in-links").await.refused(403, "forbidden", None);
    s.end().await;
}

/// Also one that may do nothing else: its key has expired.
#[tokio::test]
async fn a_refused_session_can_be_ended() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let key = json!({"name": "k", "kind": "admin", "expires_on": "2026-03-02T10:00:00Z"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    let visitor = Visitor::sign_in(s.url(), key["key"].as_str().unwrap()).await;
    s.now_is("2026-03-02T10:00:00Z").await;
    let led = send_request(visitor.request_page("/workflows")).await.expect(303);
    assert_eq!(header(&led, "location"), "/sign-in?next=%2Fworkflows");
    visitor.send_form("/sign-out", "").await.expect(200);
    assert_eq!(s.count("SELECT count(*) FROM console_sessions WHERE ended_on IS NULL").await, 0);
    let audited = s.admin().get("/api/v1/audit?verb=sign-out").await.expect(200).json;
    assert_eq!(audited["items"][0]["actor"], format!("key:{}", key["prefix"].as_str().unwrap()));
    s.end().await;
}
