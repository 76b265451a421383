//! Step 1 of 7: workflows that a file defines, loaded by `cronbox-app serve --schedules FILE` before it listens.
//!
//! The complete file is read and validated before anything changes. Then workflows that differ are created or changed
//! by the same functions as an edit by the API. Workflows that the file does not name do not change.

mod document;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use access::hosts::find_allowed_hosts;
use anyhow::{Context as _, anyhow, bail};
use db::PgConnection;
use egress::allowed::Tenant;
use executor::actions;
use schedule::WorkflowId;
use workflows::audit::Edit;
use workflows::definition::field::FieldError;
use workflows::definition::spec::{self, Bounds, Spec, Timing};
use workflows::secrets::SecretError;
use workflows::secrets::team_secrets::find_unresolved;
use workflows::{PausedBy, State, Workflow, create_workflow, find_workflow, lock_workflow, save_workflow};

use crate::App;
use document::Definition;
use manifest::{Complaint, Team};

/// How often a load is repeated because the same workflows were edited concurrently.
const TRIES: u32 = 5;
/// The pause before a load is repeated.
const PAUSE: Duration = Duration::from_millis(200);

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Workflows created.
    pub created: usize,
    /// Workflows changed.
    pub changed: usize,
    /// Workflows that already were as in the file.
    pub unchanged: usize,
    /// Definitions that were not applied, because their schedule has no time left.
    pub spent: usize,
}

/// Why a load changed nothing.
enum Stopped {
    /// The file is not valid.
    Wrong(Vec<Complaint>),
    /// Another transaction edited the same workflows at the same time.
    Crossed,
    Failed(SecretError),
}

/// The change that one definition needs.
enum Plan {
    Create(i64, Spec),
    Change(WorkflowId, Spec),
    Keep,
    /// The schedule has no time left: an existing workflow does not change, a new one is not created.
    Spent(Complaint),
}

/// Loads a file completely, or changes nothing.
///
/// Instances that start at the same moment load one after the other, because the first locks the teams' rows.
///
/// # Errors
/// Fails if the file cannot be read, if it is not valid (each complaint has its line), or if the database fails.
pub async fn load_schedules(app: &App, path: &Path) -> anyhow::Result<Loaded> {
    let shown = path.display();
    let text = tokio::fs::read_to_string(path).await.with_context(|| format!("cannot read {shown}"))?;
    let name = path.file_name().and_then(|name| name.to_str()).with_context(|| format!("{shown} names no file"))?;
    let wanted = document::parse_document(&text, &crate::config::environment_variable)
        .map_err(|complaints| file_error(path, &complaints))?;
    // Before any transaction, because name resolution may be slow.
    let refused = out_of_reach(app, &wanted).await;
    for _ in 0..TRIES {
        let edit = Edit::without_request(format!("file:{name}"), app.clock.now());
        match apply(app, name, &wanted, &refused, &edit).await {
            Ok(loaded) => {
                app.notifier.request_notification();
                let Loaded { created, changed, unchanged, spent } = loaded;
                tracing::info!(
                    step = 1,
                    "schedules file loaded: {shown}: {created} workflows created, {changed} changed, \
                     {unchanged} unchanged, {spent} not applied"
                );
                return Ok(loaded);
            }
            Err(Stopped::Wrong(complaints)) => return Err(file_error(path, &complaints)),
            Err(Stopped::Failed(error)) => return Err(error).with_context(|| format!("cannot load {shown}")),
            Err(Stopped::Crossed) => tokio::time::sleep(PAUSE).await,
        }
    }
    bail!("cannot load {shown}: other edits changed its workflows at each try; start the app again")
}

/// Lists for each definition the complaint about an action whose URL may not be called.
async fn out_of_reach(app: &App, wanted: &[Definition]) -> Vec<Option<FieldError>> {
    let mut refused = Vec::new();
    for definition in wanted {
        // The hosts of the team are checked in the transaction, which knows the team.
        let tenant = Tenant { team_id: None, hosts: &[] };
        refused.push(actions::check_reach(&definition.body.action, &app.allowed, tenant).await.err());
    }
    refused
}

async fn apply(
    app: &App,
    file: &str,
    wanted: &[Definition],
    refused: &[Option<FieldError>],
    edit: &Edit,
) -> Result<Loaded, Stopped> {
    let mut tx = db::begin_transaction(&app.pools.work).await?;
    lock_teams(&mut tx, wanted).await?;
    let (mut plans, mut complaints) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    let bounds = Bounds { now: edit.now, retention: app.ledger_kept };
    for (definition, refused) in wanted.iter().zip(refused) {
        match plan(app, &mut tx, file, definition, &mut names, &bounds).await? {
            // A workflow that does not change is loaded, and each send checks it.
            Ok(plan @ (Plan::Keep | Plan::Spent(_))) => plans.push(plan),
            Ok(plan) => match refused {
                None => plans.push(plan),
                Some(error) => complaints.push(definition.complaint_about(error)),
            },
            Err(error) => complaints.push(definition.complaint_about(&error)),
        }
    }
    if !complaints.is_empty() {
        return Err(Stopped::Wrong(complaints));
    }
    let mut loaded = Loaded::default();
    // What changes does so now, not when the load began to wait for the teams and to read: else a time that passed meanwhile
    // would be due, and run late.
    let edit = &Edit { now: app.clock.now(), ..edit.clone() };
    // There are as many, because there is no complaint.
    for (plan, Definition { paused, .. }) in plans.into_iter().zip(wanted) {
        match plan {
            Plan::Keep => loaded.unchanged += 1,
            Plan::Spent(Complaint { line, detail }) => {
                tracing::warn!(file, line, "definition not applied: its schedule has no future time: {detail}");
                loaded.spent += 1;
            }
            Plan::Create(team_id, spec) => {
                create(&mut tx, file, team_id, spec, *paused, edit).await?;
                loaded.created += 1;
            }
            Plan::Change(id, spec) => {
                change(&mut tx, file, id, spec, *paused, edit).await?;
                loaded.changed += 1;
            }
        }
    }
    tx.commit().await?;
    Ok(loaded)
}

/// Compares a definition with the existing workflow; a workflow that it does not change is not locked.
async fn plan(
    app: &App,
    tx: &mut PgConnection,
    file: &str,
    definition: &Definition,
    names: &mut BTreeSet<(i64, String)>,
    bounds: &Bounds,
) -> Result<Result<Plan, FieldError>, SecretError> {
    let Some(team_id) = team_id(tx, &definition.team).await? else {
        return Ok(Err(FieldError::new(
            "unknown_team",
            "team",
            "the team does not exist: create it with `cronbox-app teams create`",
        )));
    };
    // The parser compares the names of teams, and this one may have its name and its id in the file.
    if !names.insert((team_id, definition.body.name.clone())) {
        return Ok(Err(FieldError::new(
            "name_taken",
            "name",
            "another workflow of the file has the same team and name: remove one of them",
        )));
    }
    let current = match find_current(tx, team_id, &definition.body.name).await? {
        Some(id) => find_workflow(tx, id, None).await?.map(|(workflow, _)| workflow),
        None => None,
    };
    let existing = current.as_ref().map(|workflow| &workflow.spec);
    let mut spec = match definition.body.clone().into_spec(existing, bounds) {
        Ok(spec) => spec,
        Err(error) if error.code == spec::NEVER_FIRES => {
            return Ok(Ok(Plan::Spent(definition.complaint_about(&error))));
        }
        Err(error) => return Ok(Err(error)),
    };
    if let Some(refused) = find_unresolved(tx, team_id, &spec.action).await? {
        return Ok(Err(refused));
    }
    let before = existing.map(|spec| &spec.action);
    app.secrets.seal_action(tx, team_id, &mut spec.action, before, bounds.now).await?;
    let plan = compare(file, team_id, current, spec);
    if let Ok(Plan::Create(..) | Plan::Change(..)) = plan {
        let hosts = find_allowed_hosts(tx, team_id).await?.unwrap_or_default();
        if let Err(refused) = actions::check_host(&definition.body.action, &hosts) {
            return Ok(Err(refused));
        }
    }
    Ok(plan)
}

fn compare(file: &str, team_id: i64, current: Option<Workflow>, spec: Spec) -> Result<Plan, FieldError> {
    match current {
        None => Ok(Plan::Create(team_id, spec)),
        Some(workflow) => match workflow.managed_by.as_deref() {
            Some(other) if other != file => {
                let detail = format!("workflow {} belongs to the file {other}", workflow.id);
                Err(FieldError::new("managed", "name", detail))
            }
            Some(_) if workflow.spec == spec => Ok(Plan::Keep),
            _ => Ok(Plan::Change(workflow.id, spec)),
        },
    }
}

/// Creates a workflow. A paused one gets its schedule by the edit that pauses it, so that no version of it is active.
async fn create(
    tx: &mut PgConnection,
    file: &str,
    team_id: i64,
    spec: Spec,
    paused: bool,
    edit: &Edit,
) -> Result<(), Stopped> {
    if !paused {
        create_workflow(tx, team_id, spec, Some(file), edit).await?;
        return Ok(());
    }
    let timing = Timing { cron: None, ..spec.timing.clone() };
    let before = create_workflow(tx, team_id, Spec { timing, ..spec.clone() }, Some(file), edit).await?;
    save_workflow(tx, &before, pause(Workflow { spec, ..before.clone() }), "pause", edit).await?;
    Ok(())
}

fn pause(workflow: Workflow) -> Workflow {
    let pause_reason = Some("paused in the schedules file".to_owned());
    Workflow { state: State::Paused, pause_reason, paused_by: Some(PausedBy::Client), ..workflow }
}

/// Changes a workflow, which is read again under its lock. The file now manages it, even if the API created it.
async fn change(
    tx: &mut PgConnection,
    file: &str,
    id: WorkflowId,
    spec: Spec,
    paused: bool,
    edit: &Edit,
) -> Result<(), Stopped> {
    let before = lock_workflow(tx, id, None, edit.now).await?.filter(|before| before.state != State::Archived);
    let Some(before) = before.filter(|before| before.spec.name == spec.name) else {
        return Err(Stopped::Crossed);
    };
    let begins = before.spec.timing.cron.is_none() && before.state == State::Active;
    let next = Workflow { spec, managed_by: Some(file.to_owned()), ..before.clone() };
    let next = if paused && begins && next.spec.timing.cron.is_some() { pause(next) } else { next };
    save_workflow(tx, &before, next, "load", edit).await?;
    Ok(())
}

async fn team_id(db: &mut PgConnection, team: &Team) -> sqlx::Result<Option<i64>> {
    let (id, name) = match team {
        Team::Named(name) => (None, Some(name)),
        Team::Numbered(id) => (Some(*id), None),
    };
    sqlx::query_scalar!(
        r#"
        -- find a team by its id or its name
        SELECT id FROM teams WHERE id = $1 OR name = $2
        "#,
        id,
        name,
    )
    .fetch_optional(db)
    .await
}

/// Locks the rows of the file's teams; NO KEY, so that the API can still create workflows in them.
async fn lock_teams(tx: &mut PgConnection, wanted: &[Definition]) -> sqlx::Result<()> {
    let named = |definition: &Definition| match &definition.team {
        Team::Named(name) => Some(name.clone()),
        Team::Numbered(_) => None,
    };
    let numbered = |definition: &Definition| match definition.team {
        Team::Named(_) => None,
        Team::Numbered(id) => Some(id),
    };
    sqlx::query!(
        r#"
        -- lock the teams of a file, always in the same order: another instance loads the same file
        SELECT id FROM teams WHERE id = ANY($1) OR name = ANY($2) ORDER BY id FOR NO KEY UPDATE
        "#,
        &wanted.iter().filter_map(numbered).collect::<Vec<i64>>(),
        &wanted.iter().filter_map(named).collect::<Vec<String>>(),
    )
    .fetch_all(tx)
    .await
    .map(drop)
}

async fn find_current(db: &mut PgConnection, team_id: i64, name: &str) -> sqlx::Result<Option<WorkflowId>> {
    let id = sqlx::query_scalar!(
        r#"
        -- the existing workflow of this name
        SELECT id FROM workflows WHERE team_id = $1 AND name = $2 AND state <> 'archived'
        "#,
        team_id,
        name,
    )
    .fetch_optional(db)
    .await?;
    Ok(id.map(WorkflowId))
}

fn file_error(path: &Path, complaints: &[Complaint]) -> anyhow::Error {
    let lines = complaints.iter().map(|Complaint { line, detail }| format!("{}:{line}: {detail}", path.display()));
    anyhow!(lines.collect::<Vec<_>>().join("\n"))
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        let refused = error.as_database_error();
        match refused.and_then(sqlx::error::DatabaseError::code).as_deref() {
            // unique: the API created the same name meanwhile; serialisation, deadlock, lock timeout: another instance
            Some("23505" | "40001" | "40P01" | "55P03") => Self::Crossed,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<SecretError> for Stopped {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Database(error) => error.into(),
            error => Self::Failed(error),
        }
    }
}
