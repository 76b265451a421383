//! Step 7 of 7: rules, which events of a team or of a workflow become notifications.

use api_types::notifications::{NotificationEvent, RuleView};
use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::{Value, json};
use workflows::audit::{self, Edit, Entry};
use workflows::definition::field::FieldError;
use workflows::keyset::KeysetPage;

/// How many rules a team has at most.
pub const MOST_RULES: i64 = 500;
/// How many rules of one event are for the same workflow at most, and how many for all workflows: each writes a notification in
/// the transaction of the event, in which the fires of other teams are, too.
pub const MOST_ALIKE: i64 = 20;
/// How many channels a rule has at most.
const MOST_CHANNELS: usize = 20;
/// How long a condition may have to last: 31 days.
const MOST_AFTER_SECS: i32 = 31 * 24 * 3_600;
/// For how long notifications may be collected.
const MOST_GROUP_SECS: i32 = 3_600;
/// How many failures or skipped times in a row a rule may count.
const MOST_THRESHOLD: i32 = 100;
/// For how long notifications are collected, unless a rule says otherwise.
const DEFAULT_GROUP_SECS: i32 = 60;

/// What a client defines of a rule.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// The workflow; `None`: all of the team.
    pub workflow_id: Option<i64>,
    /// What happens.
    pub event: NotificationEvent,
    /// How often in a row.
    pub threshold: Option<i32>,
    /// How long a condition lasts.
    pub after_secs: Option<i32>,
    /// For how long notifications are collected; `None`: 60 s, and 5 s for `auto_paused`.
    pub group_secs: Option<i32>,
    /// The channels that get it.
    pub channel_ids: Vec<i64>,
    /// Whether it is in force.
    pub is_enabled: bool,
}

/// A rule as it is stored.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its id.
    pub id: i64,
    /// The owner.
    pub team_id: i64,
    workflow_id: Option<i64>,
    event: String,
    threshold: Option<i32>,
    after_secs: Option<i32>,
    group_secs: i32,
    channel_ids: Vec<i64>,
    snoozed_until: Option<DateTime<Utc>>,
    is_enabled: bool,
    /// Raised by each change.
    pub version: i64,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// What became of a rule that is to be written.
#[derive(Clone, Debug)]
pub enum RuleWrite {
    /// It is written.
    Written(Box<Rule>),
    /// The team has as many as it may.
    TooMany,
    /// As many of this event are for the same workflow, or for all workflows, as may be.
    TooManyAlike,
    /// This channel is none of the team.
    NoChannel(i64),
    /// The workflow is none of the team.
    NoWorkflow,
}

impl RuleSpec {
    /// The rules of a team that has none: what most teams want to know, about all of its workflows.
    #[must_use]
    pub fn defaults(channel_id: i64) -> Vec<Self> {
        use NotificationEvent::{Abandoned, AutoPaused, FailuresInARow, Missed, Recovered, SyncFailed};
        let events = [
            (FailuresInARow, Some(3)),
            (Recovered, Some(3)),
            (Missed, None),
            (Abandoned, None),
            (AutoPaused, None),
            (SyncFailed, None),
        ];
        let of_event = |(event, threshold)| Self {
            workflow_id: None,
            event,
            threshold,
            after_secs: None,
            group_secs: None,
            channel_ids: vec![channel_id],
            is_enabled: true,
        };
        events.into_iter().map(of_event).collect()
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// Fails with the first field that is not valid.
    pub fn check(&self) -> Result<(), FieldError> {
        let event = self.event.as_str();
        check_number("threshold", self.threshold, event, self.event.has_threshold(), 1, MOST_THRESHOLD)?;
        check_number("after_secs", self.after_secs, event, self.event.has_duration(), 60, MOST_AFTER_SECS)?;
        if self.group_secs.is_some_and(|secs| !(0..=MOST_GROUP_SECS).contains(&secs)) {
            return Err(FieldError::invalid("group_secs", format!("group_secs must be from 0 to {MOST_GROUP_SECS}")));
        }
        if !(1..=MOST_CHANNELS).contains(&self.channel_ids.len()) {
            return Err(FieldError::invalid("channel_ids", format!("a rule needs 1 to {MOST_CHANNELS} channels")));
        }
        match (self.event, self.workflow_id) {
            // It reads the runs of each workflow again and again.
            (NotificationEvent::NoSuccess, None) => {
                Err(FieldError::new("missing_field", "workflow_id", "no_success needs a workflow_id"))
            }
            (NotificationEvent::FrozenLong, Some(_)) => {
                Err(FieldError::invalid("workflow_id", "frozen_long is about all workflows: leave out workflow_id"))
            }
            _ => Ok(()),
        }
    }

    fn group_secs(&self) -> i32 {
        let default = if self.event == NotificationEvent::AutoPaused { 5 } else { DEFAULT_GROUP_SECS };
        self.group_secs.unwrap_or(default)
    }
}

fn check_number(
    field: &str,
    value: Option<i32>,
    event: &str,
    has_it: bool,
    least: i32,
    most: i32,
) -> Result<(), FieldError> {
    match value {
        None if has_it => Err(FieldError::new("missing_field", field, format!("{event} needs {field}"))),
        Some(_) if !has_it => Err(FieldError::invalid(field, format!("{event} has no {field}"))),
        Some(value) if !(least..=most).contains(&value) => {
            Err(FieldError::invalid(field, format!("{field} must be from {least} to {most}")))
        }
        _ => Ok(()),
    }
}

impl Rule {
    /// The view of the API.
    #[must_use]
    pub fn view(&self) -> RuleView {
        RuleView {
            id: self.id,
            team_id: self.team_id,
            workflow_id: self.workflow_id,
            event: self.event(),
            threshold: self.threshold,
            after_secs: self.after_secs,
            group_secs: self.group_secs,
            channel_ids: self.channel_ids.clone(),
            snoozed_until: self.snoozed_until,
            enabled: self.is_enabled,
            version: self.version,
            created_on: self.created_on,
            updated_on: self.updated_on,
        }
    }

    /// What happens. The table permits no other word.
    fn event(&self) -> NotificationEvent {
        NotificationEvent::parse(&self.event).unwrap_or(NotificationEvent::RunFailed)
    }

    fn audited(&self) -> Value {
        json!({
            "workflow_id": self.workflow_id, "event": self.event, "threshold": self.threshold, "after_secs": self.after_secs,
            "group_secs": self.group_secs, "channel_ids": self.channel_ids, "snoozed_until": self.snoozed_until,
            "enabled": self.is_enabled,
        })
    }
}

/// Creates a rule of a team, which the caller has checked; or says why not, then the caller rolls back.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn create_rule(tx: &mut PgConnection, team_id: i64, spec: &RuleSpec, edit: &Edit) -> sqlx::Result<RuleWrite> {
    if !is_own_workflow(tx, team_id, spec.workflow_id).await? {
        return Ok(RuleWrite::NoWorkflow);
    }
    let id = insert_rule(tx, team_id, spec, edit.now).await?;
    if let Some(missing) = write_channels(tx, id, team_id, &spec.channel_ids).await? {
        return Ok(RuleWrite::NoChannel(missing));
    }
    let counted = count_rules(tx, team_id, spec).await?;
    if counted.all > MOST_RULES {
        return Ok(RuleWrite::TooMany);
    }
    if counted.alike > MOST_ALIKE {
        return Ok(RuleWrite::TooManyAlike);
    }
    read_written(tx, id, None, "create", edit).await
}

/// Replaces the fields of a rule, which the caller has locked; or says why not, then the caller rolls back.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn replace_rule(
    tx: &mut PgConnection,
    before: &Rule,
    spec: &RuleSpec,
    edit: &Edit,
) -> sqlx::Result<RuleWrite> {
    if !is_own_workflow(tx, before.team_id, spec.workflow_id).await? {
        return Ok(RuleWrite::NoWorkflow);
    }
    update_rule(tx, before.id, spec, edit.now).await?;
    if let Some(missing) = write_channels(tx, before.id, before.team_id, &spec.channel_ids).await? {
        return Ok(RuleWrite::NoChannel(missing));
    }
    let is_other = (before.event(), before.workflow_id) != (spec.event, spec.workflow_id);
    if is_other && count_rules(tx, before.team_id, spec).await?.alike > MOST_ALIKE {
        return Ok(RuleWrite::TooManyAlike);
    }
    read_written(tx, before.id, Some(before.audited()), "update", edit).await
}

/// Snoozes a rule, which the caller has locked, until a time; `None` ends it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn snooze_rule(
    tx: &mut PgConnection,
    before: &Rule,
    until: Option<DateTime<Utc>>,
    edit: &Edit,
) -> sqlx::Result<RuleWrite> {
    sqlx::query!(
        r#"
        -- snooze a rule
        UPDATE notification_rules SET snoozed_until = $2, updated_on = $3, version = version + 1 WHERE id = $1
        "#,
        before.id,
        until,
        edit.now,
    )
    .execute(&mut *tx)
    .await?;
    read_written(tx, before.id, Some(before.audited()), "snooze", edit).await
}

/// Deletes a rule, which the caller has locked. Its notifications stay.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn delete_rule(tx: &mut PgConnection, before: &Rule, edit: &Edit) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- delete a rule
        DELETE FROM notification_rules WHERE id = $1
        "#,
        before.id,
    )
    .execute(&mut *tx)
    .await?;
    record(tx, edit, "delete", before, Some(before.audited()), None).await
}

async fn read_written(
    tx: &mut PgConnection,
    id: i64,
    before: Option<Value>,
    verb: &str,
    edit: &Edit,
) -> sqlx::Result<RuleWrite> {
    let Some(rule) = find_rule(tx, id, None).await? else { return Err(sqlx::Error::RowNotFound) };
    record(tx, edit, verb, &rule, before, Some(rule.audited())).await?;
    Ok(RuleWrite::Written(Box::new(rule)))
}

async fn record(
    tx: &mut PgConnection,
    edit: &Edit,
    verb: &str,
    rule: &Rule,
    before: Option<Value>,
    after: Option<Value>,
) -> sqlx::Result<()> {
    let subject = format!("notification-rule:{}", rule.id);
    audit::record_entry(tx, edit, Entry { verb, subject, team_id: Some(rule.team_id), before, after }).await
}

/// Finds a rule of a team, or of any team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_rule(db: &mut PgConnection, id: i64, team_id: Option<i64>) -> sqlx::Result<Option<Rule>> {
    sqlx::query_as!(
        Rule,
        r#"
        -- find a rule
        SELECT r.id, r.team_id, r.workflow_id, r.event, r.threshold, r.after_secs, r.group_secs, r.snoozed_until, r.is_enabled,
               r.version, r.created_on, r.updated_on,
               ARRAY(SELECT c.channel_id FROM notification_rule_channels c WHERE c.rule_id = r.id ORDER BY 1) AS "channel_ids!"
          FROM notification_rules r
         WHERE r.id = $1 AND ($2::bigint IS NULL OR r.team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// As [`find_rule`], and locks it until the transaction ends. Decisions and ends of runs may refer to it meanwhile: those
/// of other teams are in the same transactions.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn lock_rule(tx: &mut PgConnection, id: i64, team_id: Option<i64>) -> sqlx::Result<Option<Rule>> {
    sqlx::query!(
        r#"
        -- lock a rule; the next statement reads it
        SELECT FROM notification_rules
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
           FOR NO KEY UPDATE
        "#,
        id,
        team_id,
    )
    .fetch_optional(&mut *tx)
    .await?;
    find_rule(tx, id, team_id).await
}

/// Lists the rules of a team, or of all teams, the newest first; of one workflow those of its team, too.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_rules(
    db: &mut PgConnection,
    team_id: Option<i64>,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Rule, i64>> {
    let rows = sqlx::query_as!(
        Rule,
        r#"
        -- list rules by key
        SELECT r.id, r.team_id, r.workflow_id, r.event, r.threshold, r.after_secs, r.group_secs, r.snoozed_until, r.is_enabled,
               r.version, r.created_on, r.updated_on,
               ARRAY(SELECT c.channel_id FROM notification_rule_channels c WHERE c.rule_id = r.id ORDER BY 1) AS "channel_ids!"
          FROM notification_rules r
         WHERE r.id < $2 AND ($1::bigint IS NULL OR r.team_id = $1)
         ORDER BY r.id DESC
         LIMIT $3
        "#,
        team_id,
        before.unwrap_or(i64::MAX),
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |rule| rule.id))
}

async fn is_own_workflow(tx: &mut PgConnection, team_id: i64, workflow_id: Option<i64>) -> sqlx::Result<bool> {
    let Some(workflow_id) = workflow_id else { return Ok(true) };
    sqlx::query_scalar!(
        r#"
        -- is the workflow of the team, and not archived
        SELECT EXISTS (SELECT FROM workflows WHERE id = $1 AND team_id = $2 AND state <> 'archived') AS "is!"
        "#,
        workflow_id,
        team_id,
    )
    .fetch_one(tx)
    .await
}

async fn insert_rule(tx: &mut PgConnection, team_id: i64, spec: &RuleSpec, now: DateTime<Utc>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- insert a rule
        INSERT INTO notification_rules (team_id, workflow_id, event, threshold, after_secs, group_secs, is_enabled, created_on,
                                        updated_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
        RETURNING id
        "#,
        team_id,
        spec.workflow_id,
        spec.event.as_str(),
        spec.threshold,
        spec.after_secs,
        spec.group_secs(),
        spec.is_enabled,
        now,
    )
    .fetch_one(tx)
    .await
}

async fn update_rule(tx: &mut PgConnection, id: i64, spec: &RuleSpec, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- replace the fields of a rule
        UPDATE notification_rules
           SET workflow_id = $2, event = $3, threshold = $4, after_secs = $5, group_secs = $6, is_enabled = $7, updated_on = $8,
               version = version + 1
         WHERE id = $1
        "#,
        id,
        spec.workflow_id,
        spec.event.as_str(),
        spec.threshold,
        spec.after_secs,
        spec.group_secs(),
        spec.is_enabled,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Replaces the channels of a rule; returns one that is none of the team, if there is any.
async fn write_channels(tx: &mut PgConnection, id: i64, team_id: i64, channels: &[i64]) -> sqlx::Result<Option<i64>> {
    sqlx::query!(
        r#"
        -- remove the channels that a rule has no more
        DELETE FROM notification_rule_channels WHERE rule_id = $1 AND channel_id <> ALL($2)
        "#,
        id,
        channels,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        r#"
        -- add the channels of a rule: locked, so that none of them is deleted meanwhile
        INSERT INTO notification_rule_channels (rule_id, channel_id)
        SELECT $1, c.id
          FROM (SELECT id FROM notification_channels WHERE id = ANY($2) AND team_id = $3 ORDER BY id FOR KEY SHARE) AS c
        ON CONFLICT DO NOTHING
        "#,
        id,
        channels,
        team_id,
    )
    .execute(&mut *tx)
    .await?;
    let written = sqlx::query_scalar!(
        r#"
        -- the channels of a rule
        SELECT channel_id FROM notification_rule_channels WHERE rule_id = $1
        "#,
        id,
    )
    .fetch_all(tx)
    .await?;
    Ok(channels.iter().copied().find(|channel| !written.contains(channel)))
}

/// How many rules a team has.
struct Counted {
    all: i64,
    /// Of one event, for the same workflow or for all.
    alike: i64,
}

async fn count_rules(tx: &mut PgConnection, team_id: i64, spec: &RuleSpec) -> sqlx::Result<Counted> {
    sqlx::query_as!(
        Counted,
        r#"
        -- count the rules of a team
        SELECT count(*) AS "all!", count(*) FILTER (WHERE event = $2 AND workflow_id IS NOT DISTINCT FROM $3) AS "alike!"
          FROM notification_rules
         WHERE team_id = $1
        "#,
        team_id,
        spec.event.as_str(),
        spec.workflow_id,
    )
    .fetch_one(tx)
    .await
}
