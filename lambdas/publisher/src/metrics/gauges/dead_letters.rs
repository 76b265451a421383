//! Step 5 of 7: the gauges of the mirrored dead letters.

use db::PgPool;

/// Mirrored messages that are not settled.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetters {
    /// Messages that are in their queue, by queue; each mirrored queue has a row, also an empty one.
    pub(crate) present: Vec<(&'static str, i64)>,
    /// Seconds since the oldest of these messages was sent, by queue; 0 = the queue has none. SQS's own age leaves out a message
    /// that was received more than three times, and each pass receives all of them.
    pub(crate) oldest_age_secs: Vec<(&'static str, f64)>,
    /// Of these, messages whose last redrive the app has not answered.
    pub(crate) redrives_failed: i64,
}

/// Counts the messages of these queues.
pub(super) async fn count_dead_letters(pool: &PgPool, queues: &[&'static str]) -> sqlx::Result<DeadLetters> {
    let rows = sqlx::query!(
        r#"
        -- count dead letters, by idx_dead_letters_open
        SELECT queue, COUNT(*) AS "present!", COUNT(*) FILTER (WHERE state = 'redrive_failed') AS "redrives_failed!",
               EXTRACT(EPOCH FROM cronbox_now() - MIN(COALESCE(sent_on, first_seen)))::float8 AS "oldest_age_secs!"
          FROM dead_letters
         WHERE settled_on IS NULL
         GROUP BY queue
        "#
    )
    .fetch_all(pool)
    .await?;
    let present = |queue: &str| rows.iter().find(|row| row.queue == queue).map_or(0, |row| row.present);
    // SQS's clock may be ahead.
    let age = |queue: &str| rows.iter().find(|row| row.queue == queue).map_or(0.0, |row| row.oldest_age_secs.max(0.0));
    Ok(DeadLetters {
        present: queues.iter().map(|queue| (*queue, present(queue))).collect(),
        oldest_age_secs: queues.iter().map(|queue| (*queue, age(queue))).collect(),
        redrives_failed: rows.iter().map(|row| row.redrives_failed).sum(),
    })
}
