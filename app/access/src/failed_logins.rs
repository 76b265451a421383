//! Step 1 of 7: failed logins in the audit log: one entry for each address and minute, written after the minute.
//!
//! The gate counts them where it refuses a key, a token, a session, a link or a code, so that no caller of the gate can forget one.
//!
//! A request only increments a counter in memory, so that a flood of bad keys costs the database nothing. Each instance
//! adds its counters of ended minutes to the table `failed_logins`; the job `audit` makes entries of its rows. A minute
//! has a bounded number of addresses; requests from further ones are counted together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use db::{PgConnection, PgPool};

use crate::network::network_of;

/// How many addresses a minute has on an instance: a client with many addresses cannot fill the audit log.
const MOST_ADDRESSES: usize = 100;
/// The address of requests from further addresses.
const OTHERS: &str = "others";
/// For how many minutes an instance keeps its counters while the database does not answer. Older ones lose their addresses.
const MOST_MINUTES: usize = 60;
/// After its end, a minute waits for the counters of all instances.
const SETTLE: TimeDelta = TimeDelta::minutes(1);
const MINUTE: TimeDelta = TimeDelta::minutes(1);
/// How many entries one statement writes.
const BATCH: i64 = 1_000;

/// The counters of one instance.
#[derive(Clone, Debug, Default)]
pub struct FailedLogins(Arc<Mutex<Minutes>>);

/// Failures by minute and address.
type Minutes = BTreeMap<DateTime<Utc>, BTreeMap<String, i64>>;

impl FailedLogins {
    /// Counts a failed login.
    pub fn count(&self, peer: IpAddr, now: DateTime<Utc>) {
        let mut minutes = self.lock();
        let addresses = minutes.entry(minute_of(now)).or_default();
        let address = name_network(peer);
        let is_counted = addresses.len() < MOST_ADDRESSES || addresses.contains_key(&address);
        *addresses.entry(if is_counted { address } else { OTHERS.to_owned() }).or_default() += 1;
        bound_minutes(&mut minutes);
    }

    /// Adds the counters of ended minutes to those of the other instances. If this fails, they are kept.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn store_ended_minutes(&self, pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<()> {
        self.take_ended(now).store(pool).await
    }

    /// The same, of the current minute, too: the instance ends.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn store_all(&self, pool: &PgPool) -> sqlx::Result<()> {
        let minutes = std::mem::take(&mut *self.lock());
        Taken { logins: self, minutes }.store(pool).await
    }

    fn take_ended(&self, now: DateTime<Utc>) -> Taken<'_> {
        let mut minutes = self.lock();
        let current = minutes.split_off(&minute_of(now));
        Taken { logins: self, minutes: std::mem::replace(&mut *minutes, current) }
    }

    fn put_back(&self, minutes: Minutes) {
        let mut kept = self.lock();
        for (minute, addresses) in minutes {
            let into = kept.entry(minute).or_default();
            addresses.into_iter().for_each(|(address, failures)| *into.entry(address).or_default() += failures);
        }
        bound_minutes(&mut kept);
    }

    fn lock(&self) -> MutexGuard<'_, Minutes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters that are being stored. If they are dropped before that, also because their task was cancelled, they are kept.
struct Taken<'a> {
    logins: &'a FailedLogins,
    minutes: Minutes,
}

impl Taken<'_> {
    /// In a transaction, so that a cancelled statement adds nothing. Only after a cancelled COMMIT they may count twice.
    async fn store(mut self, pool: &PgPool) -> sqlx::Result<()> {
        if self.minutes.is_empty() {
            return Ok(());
        }
        let mut tx = db::begin_transaction(pool).await?;
        add_failures(&mut tx, &self.minutes).await?;
        tx.commit().await?;
        self.minutes.clear();
        Ok(())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.logins.put_back(std::mem::take(&mut self.minutes));
    }
}

fn minute_of(time: DateTime<Utc>) -> DateTime<Utc> {
    // It fails only for times of which chrono has no nanoseconds, centuries from now.
    time.duration_trunc(MINUTE).unwrap_or(time)
}

/// Counts the addresses of minutes together that wait for too long.
fn bound_minutes(minutes: &mut Minutes) {
    let Some(surplus) = minutes.len().checked_sub(MOST_MINUTES) else { return };
    for addresses in minutes.values_mut().take(surplus).filter(|addresses| addresses.len() > 1) {
        let failures = addresses.values().sum();
        *addresses = BTreeMap::from([(OTHERS.to_owned(), failures)]);
    }
}

/// The text of the address by which a client is counted.
fn name_network(peer: IpAddr) -> String {
    match network_of(peer) {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

async fn add_failures(db: &mut PgConnection, minutes: &Minutes) -> sqlx::Result<()> {
    let rows = || minutes.iter().flat_map(|(minute, addresses)| addresses.iter().map(move |row| (*minute, row)));
    let starts: Vec<DateTime<Utc>> = rows().map(|(minute, _)| minute).collect();
    let addresses: Vec<String> = rows().map(|(_, (address, _))| address.clone()).collect();
    let failures: Vec<i64> = rows().map(|(_, (_, failures))| *failures).collect();
    sqlx::query!(
        r#"
        -- add failed logins: in order, because instances add the same minutes at the same time
        INSERT INTO failed_logins (minute, address, failures)
        SELECT minute, address, failures
          FROM UNNEST($1::timestamptz[], $2::text[], $3::bigint[]) AS f (minute, address, failures)
         ORDER BY minute, address
        ON CONFLICT (minute, address) DO UPDATE SET failures = failed_logins.failures + excluded.failures
        "#,
        &starts,
        &addresses,
        &failures,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Moves the failed logins of past minutes to the audit log; returns how many entries it wrote, 1,000 at most.
///
/// An instance that could not reach the database in time adds its part later, which becomes another entry.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn record_past_minutes(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- record failed logins: rows that an instance adds to now are left for the next turn
        WITH past AS MATERIALIZED (
            SELECT minute, address FROM failed_logins
             WHERE minute <= $1
             ORDER BY minute, address
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), moved AS (
            DELETE FROM failed_logins f USING past p WHERE f.minute = p.minute AND f.address = p.address
            RETURNING f.minute, f.address, f.failures
        )
        INSERT INTO audit_log (at, actor, verb, subject, after, source_address)
        SELECT minute, 'address:' || address, 'login.failed', 'address:' || address,
               jsonb_build_object('failures', failures), NULLIF(address, 'others')
          FROM moved
         ORDER BY minute, address
        "#,
        now - SETTLE - MINUTE,
        BATCH,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(written.rows_affected())
}

#[cfg(test)]
impl FailedLogins {
    /// The counters of all minutes, with their addresses.
    pub(crate) fn counted(&self) -> Vec<(String, i64)> {
        let minutes = self.lock();
        minutes.values().flatten().map(|(address, failures)| (address.clone(), *failures)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn networks_of_ipv6_are_counted_together() {
        let logins = FailedLogins::default();
        for peer in ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "::ffff:192.0.2.1", "192.0.2.1"] {
            logins.count(peer.parse().unwrap(), at("2026-03-02T09:00:59Z"));
        }
        assert_eq!(logins.counted(), [("192.0.2.1".to_owned(), 2), ("2001:db8:1:2::/64".to_owned(), 2)]);
    }

    #[test]
    fn further_addresses_are_counted_together() {
        let logins = FailedLogins::default();
        for peer in 0..1_000_u32 {
            logins.count(IpAddr::V4(peer.into()), at("2026-03-02T09:00:00Z"));
            logins.count(IpAddr::V4(0.into()), at("2026-03-02T09:00:00Z"));
        }
        let counted = logins.counted();
        assert_eq!(counted.len(), MOST_ADDRESSES + 1);
        assert_eq!(counted.iter().map(|(_, failures)| failures).sum::<i64>(), 2_000);
        assert!(counted.contains(&("0.0.0.0".to_owned(), 1_001)) && counted.contains(&(OTHERS.to_owned(), 900)));
    }

    #[test]
    fn a_long_outage_keeps_bounded_counters() {
        let logins = FailedLogins::default();
        for minute in 0..1_000 {
            for peer in 0..10_u32 {
                logins.count(IpAddr::V4(peer.into()), at("2026-03-02T09:00:00Z") + TimeDelta::minutes(minute));
            }
        }
        let counted = logins.counted();
        assert!(counted.len() <= 940 + MOST_MINUTES * 10, "{}", counted.len());
        assert_eq!(counted.iter().map(|(_, failures)| failures).sum::<i64>(), 10_000);
    }
}
