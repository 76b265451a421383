//! An interrupted redrive loses no message, at whatever point it stops.

use std::process::Command;

use crate::proxy::{Front, Manner};
use crate::queue::{Queue, due_at_nine, each_ran_once, undelivered, unsent};

/// The redrive is killed after the app has accepted the runs and before the answers. The next one runs nothing again.
#[tokio::test]
async fn a_killed_redrive_loses_no_message() {
    let (s, workflows @ [a, b, c]) = due_at_nine().await;
    let queue = Queue::new().await;
    let (front, url) = Front::before(s.url()).await;
    for message in [unsent(a), undelivered(b), unsent(c)] {
        queue.put(&message).await;
    }
    front.be(Manner::Delayed);
    let mut redrive = queue.begin(&s, &url, "redrive", &["--hold-secs", "5"]);
    front.delays(3).await;
    assert_eq!(
        s.count("SELECT count(*) FROM runs").await,
        3,
        "the app has run fires whose workflows the CLI does not know yet"
    );

    redrive.kill().await.unwrap();

    // The redriving process was killed, so SQS makes the messages visible again.
    queue.until((3, 0)).await;
    front.be(Manner::Pass);
    let said = queue.dlq_at(&s, &url, "redrive", &["--json"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.lines().iter().all(|line| line["detail"] == "duplicate"), "{said:?}");
    each_ran_once(&s, &workflows).await;
    assert_eq!(queue.counts().await, (0, 0));
    s.end().await;
}

/// The fires that were posted are answered first.
#[tokio::test]
async fn ctrl_c_returns_unposted_messages_at_once() {
    let (s, [wf]) = due_at_nine().await;
    let queue = Queue::new().await;
    let (front, url) = Front::before(s.url()).await;
    for _ in 0..12 {
        queue.put(&unsent(wf)).await;
    }
    queue.put_raw("what is this?", []).await;
    front.be(Manner::Delayed);
    let redrive = queue.begin(&s, &url, "redrive", &["--hold-secs", "43200"]);
    front.delays(9).await;
    let before = queue.counts().await;
    assert_eq!((before.0 + before.1, before.1), (13, 10), "one batch is in flight");

    let pid = redrive.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    front.release();

    let ended = redrive.wait_with_output().await.unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.lines().last().unwrap().starts_with("stopped: "), "{said}");
    let (seen, in_flight) = queue.counts().await;
    assert_eq!(in_flight, 0, "though they could have been in flight for half a day");
    assert!((3..=4).contains(&seen), "{seen} of 13 are left after a batch of 10: {said}");
    front.be(Manner::Pass);
    let rest = queue.dlq(&s, "redrive", &[]).await;
    assert_eq!((rest.code, queue.counts().await), (Some(1), (1, 0)), "the unreadable one stays: {rest:?}");
    each_ran_once(&s, &[wf]).await;
    s.end().await;
}
