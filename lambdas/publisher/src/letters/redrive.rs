//! Step 6 of 7: posts the requested fires to the app, and settles their rows.

use std::collections::HashMap;

use dead_letters::DeadMessage;
use futures::StreamExt as _;
use schedule::Delivered;
use uuid::Uuid;

use super::rows;
use super::source::Target;
use crate::failpoint::Point;
use crate::publisher::Publisher;

/// Fires of one queue that are posted at once.
const POSTS_AT_ONCE: usize = 10;

/// Claims the requested redrives of these messages and posts them; returns the ids of those that the app has answered for.
///
/// # Errors
/// Fails if the database fails; a fire that was posted is posted again then.
pub(super) async fn redrive_requested(
    publisher: &Publisher,
    queue: &str,
    messages: &HashMap<&str, &DeadMessage>,
) -> anyhow::Result<Vec<String>> {
    let ids: Vec<String> = messages.keys().map(|id| (*id).to_owned()).collect();
    let claimed = rows::claim_redrives(publisher.pool(), queue, &ids, publisher.owner()).await?;
    if claimed.is_empty() {
        return Ok(Vec::new());
    }
    let app = publisher.sources().connect_to_app();
    let mut posts = Vec::with_capacity(claimed.len());
    for id in &claimed {
        if let Some(message) = messages.get(id.as_str()) {
            posts.push(redrive_one(publisher, queue, message, &app));
        }
    }
    let mut posts = futures::stream::iter(posts).buffer_unordered(POSTS_AT_ONCE);
    let (mut answered, mut failed) = (Vec::new(), None);
    // Each post is awaited, also after a failure of the database, so that what the app has answered for is settled.
    while let Some(post) = posts.next().await {
        match post {
            Ok(id) => answered.extend(id),
            Err(error) => failed = Some(error),
        }
    }
    // Those that are settled are deleted by the next pass, because their rows say so.
    failed.map_or(Ok(answered), Err)
}

/// Posts one fire and settles its row; returns its id if the app has answered.
async fn redrive_one(
    publisher: &Publisher,
    queue: &str,
    message: &DeadMessage,
    app: &anyhow::Result<Target<'_>>,
) -> anyhow::Result<Option<String>> {
    let posted = match (message.fire(), app) {
        (Some(fire), Ok(app)) => app.post_fire(fire).await.map_err(|error| format!("{error:#}")),
        (Some(_), Err(error)) => Err(format!("{error:#}")),
        (None, _) => Err(message.why_it_stays().unwrap_or_default()),
    };
    publisher.injector().pass_point(Point::R1).await;
    let (pool, owner, id) = (publisher.pool(), publisher.owner(), message.id.as_str());
    match posted {
        Ok(delivered) => {
            let (result, run_id) = result_of(delivered);
            tracing::info!(queue, message_id = id, result, "dead letter redriven");
            rows::settle_redriven(pool, queue, id, owner, &result, run_id).await?;
            publisher.injector().pass_point(Point::R2).await;
            Ok(Some(message.id.clone()))
        }
        Err(why) => {
            tracing::warn!(queue, message_id = id, "dead letter not redriven: {why}");
            rows::settle_failed(pool, queue, id, owner, &why).await?;
            Ok(None)
        }
    }
}

/// What the row says about an answer, and the run that it names.
fn result_of(delivered: Delivered) -> (String, Option<Uuid>) {
    match delivered {
        Delivered::Accepted { run_id } => ("accepted".to_owned(), run_id.and_then(|id| id.parse().ok())),
        Delivered::Declined { reason } => (reason, None),
        Delivered::Gone => ("workflow_gone".to_owned(), None),
    }
}
