//! Step 7 of 7: how many fires are decided in transactions of their own at once.
//!
//! A team whose fires are all late, or whose workflows are edited while they fire, must not use up the connections that
//! the fires of other teams need. Such a fire may also wait for a lock, so all of them leave connections of their pool to
//! the batches. Within a team and among teams, the fires take their turns in their order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use db::PgConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many such fires of all teams are decided at once, if there are as many connections.
const AT_ONCE: usize = 16;
/// How many of one team, which leaves one of all at least to the others.
const OF_A_TEAM: usize = 4;
/// From so many teams on, those without a fire are forgotten.
const TEAMS: usize = 1_000;

/// The limits of one instance; clones share them.
#[derive(Clone)]
pub(super) struct SlowPath {
    all: Arc<Semaphore>,
    of_a_team: usize,
    teams: Arc<Mutex<HashMap<i64, Arc<Semaphore>>>>,
}

/// Permits one fire; dropping it lets the next one in.
pub(super) struct Admitted {
    _team: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl SlowPath {
    /// Limits these fires to so many connections.
    pub(super) fn new(connections: usize) -> Self {
        let all = connections.clamp(1, AT_ONCE);
        let of_a_team = all.saturating_sub(1).clamp(1, OF_A_TEAM);
        Self { all: Arc::new(Semaphore::new(all)), of_a_team, teams: Arc::default() }
    }

    /// Waits until a fire of this team may be decided. The limit of the team comes first, so that a team with many fires
    /// has few in the common line.
    pub(super) async fn admit_fire(&self, team_id: i64) -> Admitted {
        let team = self.limit_of(team_id);
        // The semaphores are never closed.
        let team = team.acquire_owned().await.ok();
        let all = self.all.clone().acquire_owned().await.ok();
        Admitted { _team: team, _all: all }
    }

    fn limit_of(&self, team_id: i64) -> Arc<Semaphore> {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if teams.len() >= TEAMS {
            teams.retain(|_, limit| Arc::strong_count(limit) > 1);
        }
        teams.entry(team_id).or_insert_with(|| Arc::new(Semaphore::new(self.of_a_team))).clone()
    }
}

/// Returns the team of each of these workflows; a workflow that does not exist has none.
pub(super) async fn read_teams(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<HashMap<i64, i64>> {
    let rows = sqlx::query!(
        r#"
        -- teams of the fires that are decided one by one
        SELECT id, team_id FROM workflows WHERE id = ANY($1)
        "#,
        workflows,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.team_id)).collect())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The result of a future that need not wait.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// One team has more fires than it may decide at once: those of another team do not wait for them.
    #[test]
    fn one_team_leaves_room_for_others() {
        let limits = SlowPath::new(100);
        let taken: Vec<_> = (0..OF_A_TEAM).map(|_| now(limits.admit_fire(1)).unwrap()).collect();
        let mut next = Box::pin(limits.admit_fire(1));
        assert!(now(&mut next).is_none(), "the fifth of the team waits");
        assert!(now(limits.admit_fire(2)).is_some());
        drop(taken);
        assert!(now(&mut next).is_some());
    }

    /// A pool of few connections: one team waits behind itself, and all leave the other connections to the batches.
    #[test]
    fn few_connections_are_shared() {
        let limits = SlowPath::new(2);
        let _first = now(limits.admit_fire(1)).unwrap();
        assert!(now(limits.admit_fire(1)).is_none(), "the second of the team waits");
        let _second = now(limits.admit_fire(2)).unwrap();
        assert!(now(limits.admit_fire(3)).is_none(), "there is no third connection");
        assert!(now(SlowPath::new(0).admit_fire(1)).is_some());
    }

    #[test]
    fn all_teams_together_are_limited() {
        let limits = SlowPath::new(100);
        let teams = i64::try_from(AT_ONCE).unwrap();
        let taken: Vec<_> = (0..teams).map(|team| now(limits.admit_fire(team)).unwrap()).collect();
        assert!(now(limits.admit_fire(teams)).is_none());
        drop(taken);
        assert!(now(limits.admit_fire(teams)).is_some());
    }
}
