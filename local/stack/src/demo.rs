//! `cronbox-local up --demo`: three teams with 40 workflows and 90 days of history, to look at.
//!
//! The workflows and their edits are written by the functions that the API calls, with times of the past; the decisions and the
//! runs are written in bulk, as the app would have decided them. So `cronbox verify` finds no difference. What a database can
//! have and a history does not show is added: a failed sync, a drift, dead letters, notifications.
//!
//! All of it depends only on the time of the start: names, outcomes and durations are the same each time.

mod definitions;
mod history;
mod proof;
mod rows;
mod span;
mod surroundings;

use anyhow::{Result, bail};
use chrono::{DurationRound, TimeDelta};

use self::history::History;
use self::span::{DAYS, Span};
use crate::stack::Stack;

/// Fills the database of a stack that listens for edits, and its dead-letter queues.
///
/// # Errors
/// Fails if the database has workflows, or refuses a statement.
pub async fn fill_stack(stack: &Stack) -> Result<()> {
    let has_workflows: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM workflows)").fetch_one(&stack.pool).await?;
    if has_workflows {
        bail!("--demo needs a database without workflows: name an empty folder with --data");
    }
    let end = stack.clock.now().duration_trunc(TimeDelta::minutes(1))?;
    let span = Span { begin: end - TimeDelta::days(DAYS), end };
    let teams = surroundings::create_teams(stack).await?;
    let mut tx = db::begin_transaction(&stack.pool).await?;
    let workflows = definitions::create_workflows(&mut tx, &teams, span).await?;
    let history = History::of_workflows(&workflows, span);
    rows::write_history(&mut tx, &history, &workflows, span).await?;
    surroundings::plant_failed_sync(&mut tx, &workflows, span).await?;
    tx.commit().await?;
    proof::verify_days(stack, span).await?;
    surroundings::add_notifications(stack, &teams, span).await?;
    surroundings::add_dead_letters(stack, &workflows, span).await?;
    surroundings::publish_and_plant_drift(stack, &workflows).await
}
