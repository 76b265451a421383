//! `cronbox dlq ls` and `show`: the workflow, the time, the failure, the number of tries, and what the app knows of it.

use serde_json::{Value, json};

use crate::queue::{NINE, Queue, due_at_nine, truncated, undelivered, undrained, unsent};

#[tokio::test]
async fn messages_of_all_shapes_are_listed() {
    let (s, [lost, ran, gone, long]) = due_at_nine().await;
    let queue = Queue::new().await;
    s.invoke(ran, NINE).await;
    s.delete(gone).await;
    s.runs_end().await;
    let (half, whole) = truncated(long);
    let [a, b, c] =
        [queue.put(&unsent(lost)).await, queue.put(&undelivered(ran)).await, queue.put(&unsent(gone)).await];
    let d = queue.put_raw(&half, whole.attributes.iter()).await;
    let [e, f] = [queue.put(&undrained()).await, queue.put_raw("what is this?", []).await];

    let said = queue.dlq(&s, "ls", &["--json"]).await;

    assert_eq!(said.code, Some(0), "{said:?}");
    let lines = said.lines();
    let reply = |id: &String| {
        let line = lines.iter().find(|line| line["message_id"] == **id).unwrap();
        json!([line["from"], line["workflow_id"], line["scheduled_time"], line["tries"], line["app"]["known"]])
    };
    assert_eq!(reply(&a), json!(["schedule", lost, NINE, 1, "nothing"]));
    assert_eq!(reply(&b), json!(["runner", ran, NINE, 3, "decided"]));
    assert_eq!(reply(&c), json!(["schedule", gone, NINE, 1, "gone"]));
    assert_eq!(reply(&d), json!(["schedule", long, NINE, 1, "nothing"]));
    assert_eq!(reply(&e), json!(["publisher", null, null, 3, "unasked"]));
    assert_eq!(reply(&f), json!(["unknown", null, null, null, "unasked"]));
    assert_eq!(queue.counts().await, (6, 0), "all are back");

    let table = queue.dlq(&s, "ls", &[]).await.out;
    let row = |id: &str| table.lines().find(|line| line.starts_with(id)).unwrap();
    let (app, error) = (" nothing ", "  AccessDeniedException: not authorized to perform lambda:InvokeFunction");
    assert!(row(&a).contains(app) && row(&a).ends_with(error), "{table}");
    assert!(row(&b).contains("fired, succeeded") && row(&b).contains("the app did not answer: timeout"), "{table}");
    assert!(row(&f).ends_with("cannot be read: the event is not a JSON object"), "{table}");
    assert_eq!(queue.dlq(&s, "ls", &["--limit", "2"]).await.out.lines().count(), 3, "a head and two rows");
    assert_eq!(queue.counts().await, (6, 0));
    s.end_early().await;
}

#[tokio::test]
async fn show_needs_no_app() {
    let (s, [wf]) = due_at_nine().await;
    let queue = Queue::new().await;
    let message = unsent(wf);
    let id = queue.put(&message).await;
    let raw = queue.put_raw("\u{1b}[2Jwhat is this?", []).await;

    let said = queue.dlq(&s, "show", &[&id, "--json"]).await.lines();
    assert_eq!(serde_json::from_str::<Value>(said[0]["body"].as_str().unwrap()).unwrap(), message.body);
    assert_eq!(said[0]["attributes"], json!(message.attributes));
    let text = queue.dlq(&s, "show", &[&raw]).await.out;
    assert!(text.contains("redrive    contains no readable fire"), "{text}");
    assert!(text.ends_with("\u{fffd}[2Jwhat is this?\n"), "raw, but it does not command the terminal: {text:?}");

    let away = queue.dlq_at(&s, "http://127.0.0.1:9", "show", &[&id]).await;
    assert_eq!(away.code, Some(0), "{away:?}");
    assert!(away.out.contains(&format!("workflow   {wf}\ntime       {NINE}\ntries      1\n")), "{away:?}");
    assert!(
        away.out.contains("app        ?\nredrive    posts it\n") && away.err.contains("does not answer"),
        "{away:?}"
    );

    let stranger = queue.dlq(&s, "show", &["missing"]).await;
    assert_eq!(stranger.code, Some(1));
    assert!(stranger.err.contains("message missing is not visible"), "{stranger:?}");
    assert_eq!(queue.counts().await, (2, 0));
    s.end_early().await;
}

/// The publisher's mirror has all messages of a queue in flight for a second of each minute.
#[tokio::test]
async fn messages_in_flight_elsewhere_are_counted() {
    let (s, [a, b]) = due_at_nine().await;
    let queue = Queue::new().await;
    queue.put(&unsent(a)).await;
    let alone = queue.dlq(&s, "ls", &[]).await;
    assert_eq!((alone.code, alone.err.as_str()), (Some(0), ""), "its own message is not counted: {alone:?}");

    assert_eq!(queue.receive_elsewhere().await, 1);
    let none = queue.dlq(&s, "ls", &[]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(0), "nothing\n"), "{none:?}");
    assert!(none.err.contains("are not listed (about 1)"), "{none:?}");
    let other = queue.put(&unsent(b)).await;
    let one = queue.dlq(&s, "ls", &["-o", "name"]).await;
    assert_eq!(one.out, format!("{other}\n"), "{one:?}");
    assert!(one.err.contains("are not listed (about 1)"), "{one:?}");
    assert_eq!(queue.counts().await, (1, 1));
    s.end_early().await;
}
