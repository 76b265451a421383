//! `cronbox dlq discard` deletes only the messages that the operator names, and prints what they contained.

use std::fs::File;

use tokio::io::{AsyncBufReadExt as _, BufReader};

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

/// The content of a discarded message is only in what was printed.
#[tokio::test]
async fn unprinted_messages_are_not_deleted() {
    let (s, [a]) = due_at_nine().await;
    let queue = Queue::new().await;
    let id = queue.put(&unsent(a)).await;
    queue.put(&undrained()).await;
    for form in ["table", "json", "yaml", "name"] {
        for chosen in [&[id.as_str()][..], &["--all", "--yes"]] {
            let more = [chosen, &["-o", form]].concat();

            let (reader, closed) = std::io::pipe().unwrap();
            drop(reader);
            let said = queue.dlq_into(&s, "discard", &more, closed).await;
            assert_eq!((said.code, queue.counts().await), (Some(0), (2, 0)), "{more:?}: {said:?}");
            assert!(said.err.contains("standard output is closed"), "{more:?}: {said:?}");

            let full = File::options().write(true).open("/dev/full").unwrap();
            let said = queue.dlq_into(&s, "discard", &more, full).await;
            assert_eq!((said.code, queue.counts().await), (Some(1), (2, 0)), "{more:?}: {said:?}");
            assert!(said.err.contains("could not write to standard output"), "{more:?}: {said:?}");
        }
    }
    s.end_early().await;
}

/// Each message is longer than a pipe's buffer, so the second one cannot be printed after the reader has exited.
#[tokio::test]
async fn messages_after_the_last_reader_stay() {
    let (s, _) = due_at_nine::<0>().await;
    let queue = Queue::new().await;
    for _ in 0..3 {
        queue.put_raw(&"x".repeat(200_000), []).await;
    }

    let mut discard = queue.begin(&s, s.url(), "discard", &["--all", "--yes", "--json"]);
    let mut printed = String::new();
    let mut reader = BufReader::new(discard.stdout.take().unwrap());
    reader.read_line(&mut printed).await.unwrap();
    drop(reader);

    assert_eq!(discard.wait().await.unwrap().code(), Some(0));
    assert!(printed.len() > 200_000, "{} bytes", printed.len());
    assert_eq!(queue.counts().await, (2, 0));
    s.end_early().await;
}
