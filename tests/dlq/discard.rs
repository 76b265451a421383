//! `cronbox dlq discard` deletes only the messages that the operator names, and prints what they contained.

use crate::queue::{Queue, owed_at_nine, undrained, unsent};

#[tokio::test]
async fn what_is_named_is_deleted_unposted_and_told() {
    let (s, [a, b]) = owed_at_nine().await;
    let queue = Queue::new().await;
    let letter = unsent(a);
    let id = queue.put(&letter).await;
    queue.put(&unsent(b)).await;
    queue.put(&undrained()).await;

    for refused in [&[][..], &["--all"], &["--all", "--yes", &id]] {
        let said = queue.dlq(&s, "discard", refused).await;
        assert_eq!((said.code, queue.counts().await), (Some(2), (3, 0)), "{said:?}");
    }
    let one = queue.dlq(&s, "discard", &[&id, "--json"]).await;
    assert_eq!((one.code, queue.counts().await), (Some(0), (2, 0)), "{one:?}");
    assert_eq!(one.lines()[0]["body"], letter.body.to_string(), "it could be put back by hand");
    let gone = queue.dlq(&s, "discard", &[&id]).await;
    assert_eq!((gone.code, queue.counts().await), (Some(1), (2, 0)), "{gone:?}");
    let all = queue.dlq(&s, "discard", &["--all", "--yes"]).await;
    assert_eq!((all.code, all.out.lines().count(), queue.counts().await), (Some(0), 2, (0, 0)), "{all:?}");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0, "nothing was posted");
    s.end_early().await;
}
