//! What a command does if an answer of the app is lost, as behind a load balancer during a deployment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tests::Story;

use crate::Person;

/// Forwards each request to the app, and loses the first answers to POST and to GET of a run.
struct Gateway {
    app: String,
    client: reqwest::Client,
    /// How many answers to POST are lost.
    lost_posts: usize,
    /// What it answers itself to reads of the workflow with the id 2024.
    read_of_2024: Option<(StatusCode, &'static str)>,
    posts: AtomicUsize,
    reads: AtomicUsize,
}

impl Gateway {
    /// Listens before this app; returns its URL.
    async fn start(s: &Story, lost_posts: usize) -> (String, Arc<Self>) {
        Self::start_with(s, lost_posts, None).await
    }

    async fn start_with(
        s: &Story,
        lost_posts: usize,
        read_of_2024: Option<(StatusCode, &'static str)>,
    ) -> (String, Arc<Self>) {
        let (app, client) = (s.url().to_owned(), reqwest::Client::new());
        let (posts, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let gateway = Arc::new(Self { app, client, lost_posts, read_of_2024, posts, reads });
        let router = Router::new().fallback(forward).with_state(gateway.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, gateway)
    }

    fn loses(&self, method: &Method, uri: &Uri) -> bool {
        if method == Method::POST {
            return self.posts.fetch_add(1, Ordering::Relaxed) < self.lost_posts;
        }
        // The first read of the run, which may have ended by then: the command reads it once more only if it has not.
        uri.path().starts_with("/api/v1/runs/") && self.reads.fetch_add(1, Ordering::Relaxed) == 0
    }
}

/// The app executes the request, also if its answer is lost.
async fn forward(
    State(gateway): State<Arc<Gateway>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(answer) = gateway.read_of_2024.filter(|_| uri.path() == "/api/v1/workflows/2024") {
        return answer.into_response();
    }
    headers.remove("host");
    let url = format!("{}{uri}", gateway.app);
    let answer = gateway.client.request(method.clone(), url).headers(headers).body(body).send().await.unwrap();
    if gateway.loses(&method, &uri) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    (answer.status(), answer.bytes().await.unwrap()).into_response()
}

#[tokio::test]
async fn a_fire_without_an_answer_runs_once() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "payroll", "--log", "m"]).await;
    let (url, gateway) = Gateway::start(&s, 2).await;
    let person = person.set("CRONBOX_URL", &url);
    person.ok(&["workflow", "fire", "payroll", "--wait"]).await;
    assert_eq!(gateway.posts.load(Ordering::Relaxed), 3);
    assert!(gateway.reads.load(Ordering::Relaxed) > 1, "a lost read is repeated, too");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1);
    s.end().await;
}

/// The API does not remember an edit by a key. A second resume would undo the pause of another person meanwhile.
#[tokio::test]
async fn an_edit_without_an_answer_is_not_repeated() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "payroll", "--log", "m"]).await;
    let (url, gateway) = Gateway::start(&s, 1).await;
    let person = person.set("CRONBOX_URL", &url);
    let said = person.run(&["workflow", "pause", "payroll"]).await;
    assert!(said.code == 1 && said.err.contains("may have done it: look before you repeat"), "{said:?}");
    assert_eq!(gateway.posts.load(Ordering::Relaxed), 1);
    s.end().await;
}

/// A script would store nothing as the new key, and the old one expires.
#[tokio::test]
async fn a_key_whose_text_was_lost_is_a_failure() {
    let s = Story::today().await;
    s.execute("UPDATE api_keys SET created_on = created_on - interval '1 day'").await;
    let team = s.keys.team_id.to_string();
    let create = ["key", "create", "ci", "--kind", "team", "--team", &team, "--role", "editor", "-o", "json"];
    let commands = [&create[..], &["key", "rotate", "-o", "json"], &["team", "create", "shop", "-o", "json"]];
    for words in commands {
        let (url, gateway) = Gateway::start(&s, 1).await;
        let admin = Person::admin(&s).set("CRONBOX_URL", &url);
        let said = admin.run(words).await;
        assert!(said.code == 1 && said.err.contains("was in an answer that was lost"), "{words:?}: {said:?}");
        assert_eq!(gateway.posts.load(Ordering::Relaxed), 2, "{words:?}");
    }
    assert_eq!(s.count("SELECT count(*) FROM teams WHERE name = 'shop'").await, 1);
    s.end().await;
}

/// A wrong address gives its error at once: nothing was sent.
#[tokio::test]
async fn a_wrong_address_is_said_at_once() {
    let person = Person::without_key().set("CRONBOX_KEY", "key").set("CRONBOX_URL", "http://127.0.0.1:9");
    let said = person.run(&["workflow", "fire", "1"]).await;
    assert!(said.code == 1 && said.err.contains("does not answer: check CRONBOX_URL"), "{said:?}");
}

/// A number may be the name of a workflow. Only the app's own answer that no workflow has this id says so: after any other failure the
/// command would read or change the workflow with this name, and 2024 may be the id of another one.
#[tokio::test]
async fn failed_reads_make_no_id_a_name() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "2024", "--log", "m"]).await;
    // None of them asks for a repeat.
    let failures = [
        (StatusCode::SERVICE_UNAVAILABLE, r#"{"code": "read_too_slow", "detail": "it took 2 s"}"#, "it took 2 s"),
        (StatusCode::INTERNAL_SERVER_ERROR, r#"{"code": "internal", "detail": "it failed"}"#, "it failed"),
        (StatusCode::FORBIDDEN, r#"{"code": "forbidden", "detail": "not for you"}"#, "not for you"),
        (StatusCode::NOT_FOUND, "no such page", "the app answered 404"),
        (StatusCode::OK, "welcome", "but not as cronbox does"),
    ];
    for (status, body, sentence) in failures {
        let (url, _gateway) = Gateway::start_with(&s, 0, Some((status, body))).await;
        let person = Person::editor(&s).set("CRONBOX_URL", &url);
        for words in [["workflow", "get", "2024"], ["workflow", "archive", "2024"]] {
            let said = person.run(&words).await;
            assert!(said.code != 0 && said.out.is_empty() && said.err.contains(sentence), "{words:?}: {said:?}");
        }
    }
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE state = 'active'").await, 1);
    let not_found = r#"{"code": "not_found", "detail": "there is no such object"}"#;
    let (url, _gateway) = Gateway::start_with(&s, 0, Some((StatusCode::NOT_FOUND, not_found))).await;
    let person = person.set("CRONBOX_URL", &url);
    assert_eq!(person.json(&["workflow", "get", "2024"]).await["name"], "2024");
    s.end().await;
}
