//! People sign in to the console with Canaille, by its own forms: the code flow of OIDC, with PKCE.

use regex::Regex;
use reqwest::{Response, Url};
use serde_json::json;
use tests::{Canaille, Story};

use crate::browser::{Browser, location_of};
use crate::client_that_trusts;

/// The host of the console, which a browser reaches by http.
const HOST: &str = "127.0.0.1";
/// The cookies there: of a session, and of a sign-in that has begun.
const SESSION: &str = "cronbox";
const FLOW: &str = "cronbox-sign-in";

/// An app whose console Canaille knows.
struct Console {
    s: Story,
    canaille: Canaille,
    url: Url,
}

impl Console {
    async fn start() -> Self {
        let mut canaille = Canaille::start().await;
        let mut s = Story::today().await;
        let oidc = canaille.settings(s.keys.team_id);
        let url = s.another_app_with(|config| {
            config.mail.public_url = Some(format!("http://{}", config.bind_addr).parse().unwrap());
            config.oidc = oidc;
        });
        let url: Url = url.await.unwrap().parse().unwrap();
        canaille.register_callback(url.join("/sign-in/callback").unwrap().as_str()).await;
        Self { s, canaille, url }
    }

    fn browser(&self) -> Browser {
        Browser::new(client_that_trusts(&self.canaille))
    }

    fn page(&self, path: &str) -> Url {
        self.url.join(path).unwrap()
    }

    /// Opens a page that needs a session, chooses the provider and signs in there. Returns the callback, which is not opened.
    async fn until_callback(&self, browser: &mut Browser, name: &str, consent: &str) -> Url {
        let led = location_of(&browser.get(self.page("/workflows?q=nightly")).await).expect("the sign-in");
        assert_eq!(led.path(), "/sign-in");
        let page = browser.get(led).await.text().await.unwrap();
        let link = Regex::new(r#"href="(/sign-in/provider[^"]*)""#).unwrap();
        let link = link.captures(&page).expect("a way to the provider")[1].replace("&amp;", "&");
        browser.sign_in(self.page(&link), self.page("/sign-in/callback").as_str(), name, consent).await
    }

    async fn sign_in(&self, name: &str) -> Browser {
        let mut browser = self.browser();
        let callback = self.until_callback(&mut browser, name, "accept").await;
        let signed_in = browser.get(callback).await;
        assert_eq!(location_of(&signed_in), Some(self.page("/workflows?q=nightly")), "{name} comes back to the page");
        assert_eq!(browser.cookie(HOST, FLOW), None, "the sign-in has ended");
        browser
    }
}

/// A refused callback says why, and opens no page.
async fn refuses(console: &Console, browser: &mut Browser, answer: Response, status: u16, reason: &str) {
    let found = answer.status().as_u16();
    let page = answer.text().await.unwrap();
    assert!(found == status && page.contains(reason), "{found}: {page}");
    assert!(page.contains("/sign-in/provider?next="), "it offers to begin again: {page}");
    assert_eq!(browser.cookie(HOST, SESSION), None);
    assert_eq!(browser.get(console.page("/workflows")).await.status(), 303, "the sign-in");
}

#[tokio::test]
async fn people_of_canaille_use_the_console() {
    let console = Console::start().await;
    let wf = console.s.create_with(json!({"name": "nightly"})).await;
    let pause = console.page(&format!("/workflows/{wf}/pause"));

    let mut ann = console.sign_in("ann").await;
    let page = ann.get(console.page("/workflows?q=nightly")).await.text().await.unwrap();
    assert!(page.contains("ann@example.com") && page.contains("nightly"), "{page}");
    let paused = ann.write(pause.clone(), &[("reason", "holiday"), ("until", "")]).await;
    assert_eq!(paused.status(), 200, "{}", paused.text().await.unwrap());
    assert_eq!(console.s.workflow(wf).await["state"], "paused");

    let mut bob = console.sign_in("bob").await;
    let page = bob.get(console.page(&format!("/workflows/{wf}"))).await.text().await.unwrap();
    assert!(page.contains("bob@example.com") && page.contains("holiday") && !page.contains("Resume"), "{page}");
    let me = bob.get(console.page("/admin/me")).await.text().await.unwrap();
    assert!(!me.contains("Make a link") && !me.contains("Rotate"), "a person has no key: {me}");
    let resume = console.page(&format!("/workflows/{wf}/resume"));
    assert_eq!(bob.write(resume, &[]).await.status(), 403, "a visitor only reads");

    let session = ann.cookie(HOST, SESSION).unwrap().to_owned();
    let signed_out = ann.write(console.page("/sign-out"), &[]).await;
    assert_eq!(
        (signed_out.status().as_u16(), &signed_out.headers()["hx-redirect"]),
        (200, &"/sign-in".parse().unwrap())
    );
    assert_eq!(ann.cookie(HOST, SESSION), None);
    ann.set_cookie(HOST, SESSION, Some(&session));
    assert_eq!(ann.get(console.page("/workflows")).await.status(), 303, "a copy of the cookie opens nothing");

    let issuer = &console.canaille.issuer;
    let by = |name: &str| format!("person:{name}@example.com ({issuer} {name})");
    let of_people = "SELECT verb || ' ' || actor FROM audit_log WHERE actor LIKE 'person:%' ORDER BY id";
    let expected = [("sign-in", "ann"), ("pause", "ann"), ("sign-in", "bob"), ("sign-out", "ann")];
    let expected = expected.map(|(verb, name)| format!("{verb} {}", by(name)));
    assert_eq!(console.s.table(of_people).await, expected.join("\n"));
    console.s.end().await;
}

/// Canaille knows both of them.
#[tokio::test]
async fn people_without_a_role_are_refused() {
    let console = Console::start().await;
    // First, because Canaille in memory takes the consent of one person for that of all.
    let mut ann = console.browser();
    let callback = console.until_callback(&mut ann, "ann", "deny").await;
    assert!(callback.query_pairs().any(|pair| pair == ("error".into(), "access_denied".into())), "{callback}");
    let answer = ann.get(callback).await;
    refuses(&console, &mut ann, answer, 401, "did not confirm the sign-in").await;

    let mut eve = console.browser();
    let callback = console.until_callback(&mut eve, "eve", "accept").await;
    let answer = eve.get(callback).await;
    refuses(&console, &mut eve, answer, 403, "none of your groups has a role").await;
    let begun = "SELECT count(*) FROM console_sessions";
    assert_eq!(console.s.count(begun).await, 0);
    console.s.end().await;
}

/// A code works in the browser that began the sign-in, with the texts of its cookie, and once.
#[tokio::test]
async fn codes_of_other_sign_ins_are_refused() {
    let console = Console::start().await;
    let mut ann = console.browser();
    let callback = console.until_callback(&mut ann, "ann", "accept").await;
    let flow = ann.cookie(HOST, FLOW).unwrap().to_owned();
    let of_another_flow = "was not begun in this browser";

    let mut other_state = callback.clone();
    let pairs: Vec<(String, String)> = callback.query_pairs().into_owned().collect();
    let replaced = pairs.iter().map(|(name, value)| (name, if name == "state" { "another" } else { value.as_str() }));
    other_state.query_pairs_mut().clear().extend_pairs(replaced);
    let answer = ann.get(other_state).await;
    refuses(&console, &mut ann, answer, 403, of_another_flow).await;

    ann.set_cookie(HOST, FLOW, None);
    let answer = ann.get(callback.clone()).await;
    refuses(&console, &mut ann, answer, 403, of_another_flow).await;

    // A link that an attacker sends has the state of the attacker's own sign-in.
    let mut bob = console.browser();
    bob.get(console.page("/sign-in/provider")).await;
    let answer = bob.get(callback.clone()).await;
    refuses(&console, &mut bob, answer, 403, of_another_flow).await;

    ann.set_cookie(HOST, FLOW, Some(&flow));
    assert_eq!(ann.get(callback.clone()).await.status(), 303, "the refusals have not used the code");
    let mut thief = console.browser();
    thief.set_cookie(HOST, FLOW, Some(&flow));
    let answer = thief.get(callback).await;
    refuses(&console, &mut thief, answer, 401, "did not confirm the sign-in").await;

    // Canaille compares the verifier of PKCE with the challenge of the begin. In memory it may find another open code of
    // the client, so no further code follows.
    let mut other_verifier = console.browser();
    let callback = console.until_callback(&mut other_verifier, "ann", "accept").await;
    let flow = other_verifier.cookie(HOST, FLOW).unwrap().to_owned();
    let mut parts: Vec<&str> = flow.split('.').collect();
    let verifier = "v".repeat(parts[2].len());
    parts[2] = &verifier;
    other_verifier.set_cookie(HOST, FLOW, Some(&parts.join(".")));
    let answer = other_verifier.get(callback).await;
    refuses(&console, &mut other_verifier, answer, 401, "did not confirm the sign-in").await;
    console.s.end().await;
}
