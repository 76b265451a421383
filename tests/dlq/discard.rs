//! `cronbox dlq discard` deletes only the messages that the operator names, and prints what they contained.

use crate::queue::{Queue, due_at_nine, undrained, unsent};

#[tokio::test]
async fn named_messages_are_deleted_and_printed() {
    let (s, [a, b]) = due_at_nine().await;
    let queue = Queue::new().await;
    let message = unsent(a);
    let id = queue.put(&message).await;
    queue.put(&unsent(b)).await;
    queue.put(&undrained()).await;

    for refused in [&[][..], &["--all"], &["--all", "--yes", &id]] {
        let said = queue.dlq(&s, "discard", refused).await;
        assert_eq!((said.code, queue.counts().await), (Some(2), (3, 0)), "{said:?}");
    }
    let one = queue.dlq(&s, "discard", &[&id, "--json"]).await;
    assert_eq!((one.code, queue.counts().await), (Some(0), (2, 0)), "{one:?}");
    assert_eq!(one.lines()[0]["body"], message.body.to_string(), "it could be put back manually");
    let gone = queue.dlq(&s, "discard", &[&id]).await;
    assert_eq!((gone.code, queue.counts().await), (Some(1), (2, 0)), "{gone:?}");
    let all = queue.dlq(&s, "discard", &["--all", "--yes"]).await;
    assert_eq!((all.code, all.out.lines().count(), queue.counts().await), (Some(0), 2, (0, 0)), "{all:?}");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0, "nothing was posted");
    s.end_early().await;
}
