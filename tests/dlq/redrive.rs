//! `cronbox dlq redrive`: the app answers each fire once, and only then the message is deleted.

use serde_json::{Value, json};

use crate::queue::{Queue, Said, due_at_nine, each_ran_once, truncated, undelivered, undrained, unsent};

/// The outcomes as `outcome detail`, sorted.
fn outcomes(said: &Said) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut outcomes: Vec<String> = said
        .lines()
        .iter()
        .map(|line| match word(&line["outcome"]) {
            outcome if outcome == "accepted" => outcome,
            outcome => format!("{outcome} {}", word(&line["detail"])).trim_end().to_owned(),
        })
        .collect();
    outcomes.sort();
    outcomes
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let (s, [wf]) = due_at_nine().await;
    let queue = Queue::new().await;
    queue.put(&unsent(wf)).await;
    queue.put(&undrained()).await;

    let said = queue.dlq(&s, "redrive", &["--dry-run"]).await;

    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("would be posted\n") && said.out.ends_with("1 would be posted, 1 would remain\n"),
        "{said:?}"
    );
    assert_eq!((queue.counts().await, s.count("SELECT count(*) FROM runs").await), ((2, 0), 0));
    s.end_early().await;
}

#[tokio::test]
async fn redriven_messages_run_once_and_are_deleted() {
    let (s, workflows @ [a, b, c, archived]) = due_at_nine().await;
    let queue = Queue::new().await;
    s.archive(archived).await;
    let (half, whole) = truncated(c);
    // The queue may contain the same fire twice, because Lambda delivers at least once.
    for message in [unsent(a), undelivered(a), undelivered(b), unsent(archived)] {
        queue.put(&message).await;
    }
    queue.put_raw(&half, whole.attributes.iter()).await;
    // The body is the payload itself.
    queue.put_raw(&crate::queue::fire(b).to_string(), []).await;

    let said = queue.dlq(&s, "redrive", &["--json"]).await;

    assert_eq!(said.code, Some(0), "{said:?}");
    let wanted = ["accepted", "accepted", "accepted", "declined duplicate", "declined duplicate", "gone"];
    assert_eq!(outcomes(&said), wanted, "{said:?}");
    assert_eq!(queue.counts().await, (0, 0));
    each_ran_once(&s, &workflows[..3]).await;

    let again = queue.dlq(&s, "redrive", &[]).await;
    assert_eq!((again.code, again.out.as_str()), (Some(0), "nothing\n"));
    for workflow in [a, b, c] {
        queue.put(&unsent(workflow)).await;
    }
    let twice = queue.dlq(&s, "redrive", &["--json"]).await;
    assert_eq!(outcomes(&twice), ["declined duplicate"; 3]);
    each_ran_once(&s, &workflows[..3]).await;
    assert_eq!(queue.counts().await, (0, 0));
    s.end().await;
}

#[tokio::test]
async fn messages_without_a_fire_stay() {
    let (s, [a, b]) = due_at_nine().await;
    let queue = Queue::new().await;
    let (id, _) = (queue.put(&unsent(a)).await, queue.put(&unsent(b)).await);
    queue.put(&undrained()).await;
    queue.put_raw("what is this?", []).await;
    let mut unfilled = undelivered(a);
    unfilled.body["requestPayload"]["scheduled_time"] = json!("<aws.scheduler.scheduled-time>");
    queue.put(&unfilled).await;

    let one = queue.dlq(&s, "redrive", &[&id]).await;
    assert_eq!(one.code, Some(0), "{one:?}");
    assert!(one.out.ends_with("1 answered and deleted, 0 remain\n"), "{one:?}");
    assert_eq!(queue.counts().await, (4, 0));

    let rest = queue.dlq(&s, "redrive", &["--json"]).await;
    assert_eq!(rest.code, Some(1), "{rest:?}");
    assert_eq!(
        outcomes(&rest),
        [
            "accepted",
            "unposted contains no readable fire: scheduled_time: a placeholder that EventBridge did not replace, not a time",
            "unposted contains no readable fire: the event is not a JSON object",
            "unposted nothing to post: a later tick of the publisher did its work; discard it",
        ]
    );
    assert_eq!(queue.counts().await, (3, 0), "at once, for everybody");
    each_ran_once(&s, &[a, b]).await;
    s.end().await;
}
