//! A message is deleted only after the app has answered the fire.

use crate::proxy::{Front, Manner};
use crate::queue::{Queue, due_at_nine, each_ran_once, undelivered, unsent};

#[tokio::test]
async fn foreign_answers_keep_the_message() {
    let (s, [a, b]) = due_at_nine().await;
    let queue = Queue::new().await;
    let (front, url) = Front::before(s.url()).await;
    queue.put(&unsent(a)).await;
    queue.put(&undelivered(b)).await;
    for (status, body) in [
        (503, r#"{"code":"unavailable","detail":"the database is away"}"#),
        (503, r#"{"accepted":true}"#),
        (404, "<html>nginx</html>"),
        (200, "<html>Welcome</html>"),
        (200, r#"{"status":"ok"}"#),
        (301, ""),
        (401, r#"{"code":"unauthorized"}"#),
        (410, r#"{"code":"something_else"}"#),
    ] {
        front.be(Manner::Instead(status, body));
        let said = queue.dlq_at(&s, &url, "redrive", &["--hold-secs", "43200"]).await;
        assert_eq!(said.code, Some(1), "{status} {body}: {said:?}");
        assert!(said.out.ends_with("0 answered and deleted, 2 remain\n"), "{status} {body}: {said:?}");
        assert_eq!(queue.counts().await, (2, 0), "{status} {body}");
    }
    let away = queue.dlq_at(&s, "http://127.0.0.1:9", "redrive", &[]).await;
    assert_eq!(away.code, Some(1), "{away:?}");
    assert_eq!((queue.counts().await, s.count("SELECT count(*) FROM runs").await), ((2, 0), 0));

    front.be(Manner::Pass);
    let said = queue.dlq_at(&s, &url, "redrive", &[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    each_ran_once(&s, &[a, b]).await;
    assert_eq!(queue.counts().await, (0, 0));
    s.end().await;
}

#[tokio::test]
async fn redrive_stops_while_the_app_refuses() {
    let (s, [wf]) = due_at_nine().await;
    let queue = Queue::new().await;
    let (front, url) = Front::before(s.url()).await;
    front.be(Manner::Instead(503, "{}"));
    for _ in 0..35 {
        queue.put(&unsent(wf)).await;
    }

    let said = queue.dlq_at(&s, &url, "redrive", &[]).await;

    assert_eq!(said.code, Some(1));
    assert!(said.out.ends_with("0 answered and deleted, 30 remain\n"), "{said:?}");
    assert!(said.err.contains("the app answered for no message of the last 3 batches"), "{said:?}");
    assert_eq!(queue.counts().await, (35, 0), "and all are to be seen at once");
    s.end_early().await;
}
