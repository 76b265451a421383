//! Step 7 of 7: the jobs of notifications, of which a team or channel whose statements fail delays no other one.
//!
//! A pass logs the failure, goes on with all others and counts it, so that its turn fails and `GET /jobs` shows it.

/// Name of the job in the table `jobs` that routes, collects and delivers.
pub const JOB: &str = "notifications";

/// Name of the job that finds conditions that last too long.
pub const CONDITIONS_JOB: &str = "conditions";

/// What a pass could not process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The team with this id.
    Team(i64),
    /// The channel with this id.
    Channel(i64),
}

/// Logs that a job could not process a part; its pass goes on with the others.
///
/// # Errors
/// Returns the same error if it concerns the database and not the part, because all others would fail, too.
pub(crate) fn skip_failed(job: &'static str, part: Part, error: sqlx::Error) -> sqlx::Result<()> {
    if !db::concerns_one_statement(&error) {
        return Err(error);
    }
    match part {
        Part::Team(team_id) => tracing::error!(job, team_id, %error, "job skips team {team_id}: {error}"),
        Part::Channel(channel_id) => {
            tracing::error!(job, channel_id, %error, "job skips channel {channel_id}: {error}");
        }
    }
    Ok(())
}
