//! What `apply` would do: a step for each workflow, as the app itself says by a dry run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use api_types::me::MeView;
use api_types::teams::ListedTeamView;
use api_types::workflows::{State, WorkflowView};
use futures::{StreamExt as _, TryStreamExt as _};
use manifest::{Entry, OWNER_LABEL, Team, find_repeated_previous_names};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::complete::read_complete;
use super::files::{EmptyFile, FileEntry, Files};
use crate::client::{Client, Refusal};
use crate::common::{changes_in_words, dry_run};
use crate::merge_patch::{OPTIONAL, make_merge_patch};
use crate::print::one_line;

/// Dry runs in flight.
const AT_ONCE: usize = 8;
/// Names in one sentence.
const MOST_NAMES: usize = 20;

/// What becomes of a workflow of a file that carries the label of another owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Adoption {
    /// It is left as it is, and the plan says so.
    Refused,
    /// It belongs to the file's owner afterwards.
    TakenOver,
}

/// How files are compared with what exists.
#[derive(Clone, Copy)]
pub(super) struct PlanOptions {
    /// Whether workflows that are in no file are archived.
    pub(super) prune: bool,
    pub(super) adoption: Adoption,
}

/// All steps.
pub(super) struct Plan {
    /// What becomes of the workflows of the files.
    pub(super) steps: Vec<Step>,
    /// The archiving of workflows that are in no file. It comes last, and only if no other step failed: one of them may have
    /// another name in the files, and the new one must exist first.
    pub(super) surplus: Vec<Step>,
    /// Without `--prune`: the names of the workflows that it would archive.
    unpruned: Vec<String>,
    /// Sentences about the workflows that keep the previous name of a workflow of a file, and are not archived.
    pub(super) unrenamed: Vec<String>,
}

/// What becomes of one workflow.
pub(super) struct Step {
    /// `file:line`, or the reason for a workflow that is in no file.
    pub(super) place: String,
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// The kind of a step.
pub(super) enum Kind {
    Create {
        body: Value,
        changes: Value,
        /// Whether it is paused before it gets its schedule.
        is_paused: bool,
    },
    Change {
        id: i64,
        version: i64,
        patch: Value,
        changes: Value,
        /// Whether it is paused first, because it gets its first schedule.
        is_paused: bool,
    },
    Archive {
        id: i64,
        version: i64,
    },
    Keep,
    /// The app refuses it, for this reason.
    Refused(String),
}

/// The teams of the caller, by name and id.
struct Teams {
    by_name: BTreeMap<String, i64>,
    /// The only team of the caller.
    own: Option<i64>,
}

/// Plans what the files need.
///
/// # Errors
/// Fails if the app cannot be reached, or if a file names a team that does not exist.
pub(super) async fn make_plan(client: &Client, files: Files, options: PlanOptions) -> anyhow::Result<Plan> {
    let PlanOptions { prune, adoption } = options;
    if prune && !files.name_an_owner() {
        bail!("--prune needs `owner:` in the files: it archives only what carries their owner's label");
    }
    let teams = Teams::read(client).await?;
    let owned = match find_pruned(&teams, &files) {
        // Only `--prune` needs the team of a file without workflows.
        Err(_) if !prune => BTreeSet::new(),
        owned => owned?,
    };
    let placed = place(&teams, files.entries)?;
    let own_teams = placed.iter().map(|(team, _)| *team);
    let further = owned.iter().filter(|_| prune).map(|(_, team)| *team);
    let existing = read_existing(client, own_teams.chain(further).collect()).await?;
    let steps = plan_entries(client, &placed, &existing, adoption).await?;
    let found = placed.iter().filter_map(|(team, one)| find_defined(&existing, *team, &one.entry));
    let defined: BTreeSet<i64> = found.map(|workflow| workflow.id).collect();
    let is_pruned = |workflow: &WorkflowView| prune && is_surplus(workflow, &owned, &defined);
    let unrenamed = find_previous(&existing, &placed)
        .filter(|(_, previous)| !defined.contains(&previous.id) && !is_pruned(previous))
        .map(|(one, previous)| one.say_unrenamed(previous))
        .collect();
    if !prune {
        let unpruned = find_unpruned(client, &owned, &placed, &defined, existing).await?;
        return Ok(Plan { steps, surplus: Vec::new(), unpruned, unrenamed });
    }
    let surplus = existing.values().filter(|workflow| is_pruned(workflow)).map(Step::prune).collect();
    Ok(Plan { steps, surplus, unpruned: Vec::new(), unrenamed })
}

async fn plan_entries(
    client: &Client,
    placed: &Placed,
    existing: &Existing,
    adoption: Adoption,
) -> anyhow::Result<Vec<Step>> {
    let steps = futures::stream::iter(placed)
        .map(|(team, one)| plan_entry(client, *team, one, find_defined(existing, *team, &one.entry), adoption))
        .buffered(AT_ONCE)
        .try_collect::<Vec<_>>();
    steps.await
}

/// The workflow that an entry changes: the one of its name, otherwise the one of its previous name, which is renamed.
fn find_defined<'a>(existing: &'a Existing, team: i64, entry: &Entry) -> Option<&'a WorkflowView> {
    let find = move |name: &String| existing.get(&(team, name.clone()));
    find(&entry.name).or_else(|| entry.previous_name.as_ref().and_then(find))
}

/// The entries with a workflow that has their previous name.
fn find_previous<'a>(
    existing: &'a Existing,
    placed: &'a Placed,
) -> impl Iterator<Item = (&'a FileEntry, &'a WorkflowView)> {
    placed.iter().filter_map(move |(team, one)| {
        let previous = one.entry.previous_name.clone()?;
        Some((one, existing.get(&(*team, previous))?))
    })
}

/// The names of the workflows that `--prune` would archive. A team that only a file without workflows names is read here, and one
/// that the app refuses to show is left out: without `--prune` the plan does not need it.
async fn find_unpruned(
    client: &Client,
    owned: &BTreeSet<(String, i64)>,
    placed: &Placed,
    defined: &BTreeSet<i64>,
    mut existing: Existing,
) -> anyhow::Result<Vec<String>> {
    let is_read = |team: i64| placed.iter().any(|(read, _)| *read == team);
    let further = owned.iter().map(|(_, team)| *team).filter(|team| !is_read(*team)).collect::<BTreeSet<_>>();
    for team in further {
        match read_existing(client, BTreeSet::from([team])).await {
            Err(error) if error.is::<Refusal>() => {}
            found => existing.extend(found?),
        }
    }
    let unpruned = existing.into_values().filter(|workflow| is_surplus(workflow, owned, defined));
    Ok(unpruned.map(|workflow| workflow.name).collect())
}

/// Plans the end of what the files define.
///
/// # Errors
/// Fails if the app cannot be reached, or if a file names a team that does not exist.
pub(super) async fn archive_plan(client: &Client, files: Files, adoption: Adoption) -> anyhow::Result<Plan> {
    let teams = Teams::read(client).await?;
    let placed = place(&teams, files.entries)?;
    let existing = read_existing(client, placed.iter().map(|(team, _)| *team).collect()).await?;
    let steps = placed.iter().map(|(team, one)| {
        let found = existing.get(&(*team, one.entry.name.clone()));
        let kind = found.map_or(Kind::Keep, |listed| match refuse_foreign(one, listed, adoption) {
            Some(refused) => refused,
            None => Kind::archive(listed),
        });
        Step { place: one.place(), name: one.entry.name.clone(), kind }
    });
    let steps = steps.collect();
    let unrenamed = find_previous(&existing, &placed).map(|(one, previous)| one.say_unarchived(previous)).collect();
    Ok(Plan { steps, surplus: Vec::new(), unpruned: Vec::new(), unrenamed })
}

/// The workflows of the files, each with its team.
type Placed = Vec<(i64, FileEntry)>;
/// The workflows of the app, by team and name.
type Existing = BTreeMap<(i64, String), WorkflowView>;

/// Finds the team of each workflow. One workflow may be named twice, by the name and by the id of its team.
fn place(teams: &Teams, entries: Vec<FileEntry>) -> anyhow::Result<Placed> {
    let (mut placed, mut places) = (Placed::new(), BTreeMap::new());
    for one in entries {
        let team = teams.find(one.entry.team.as_ref(), &one.place())?;
        if let Some(there) = places.insert((team, one.entry.name.clone()), one.place()) {
            bail!("{}: name: {there} has the same team and name: remove one of them", one.place());
        }
        placed.push((team, one));
    }
    let names: Vec<_> = placed.iter().map(|(team, one)| one.entry.names(*team)).collect();
    if let Some(found) = find_repeated_previous_names(&names).first() {
        let (one, other) = (&placed[found.at].1, &placed[found.other].1);
        let words = found.in_words(&other.place_of(found.field));
        bail!("{}: previous_name: {words}", one.place_of("previous_name"));
    }
    Ok(placed)
}

/// Finds the owners whose workflows are pruned, each with a team of its own files: the files of another owner may name
/// another team.
fn find_pruned(teams: &Teams, files: &Files) -> anyhow::Result<BTreeSet<(String, i64)>> {
    let mut pruned = BTreeSet::new();
    for one in &files.entries {
        if let Some(owner) = &one.owner {
            pruned.insert((owner.clone(), teams.find(one.entry.team.as_ref(), &one.place())?));
        }
    }
    for EmptyFile { file, owner, team } in &files.empty {
        if let Some(owner) = owner {
            pruned.insert((owner.clone(), teams.find(team.as_ref(), file)?));
        }
    }
    Ok(pruned)
}

/// Whether `--prune` archives a workflow; `defined` has the ids of those that the files define.
fn is_surplus(workflow: &WorkflowView, pruned: &BTreeSet<(String, i64)>, defined: &BTreeSet<i64>) -> bool {
    let owner = workflow.labels.get(OWNER_LABEL);
    owner.is_some_and(|owner| pruned.contains(&(owner.clone(), workflow.team_id))) && !defined.contains(&workflow.id)
}

/// Refuses a workflow that carries another owner's label: both files would change it in turn, and `delete` would end it.
fn refuse_foreign(one: &FileEntry, listed: &WorkflowView, adoption: Adoption) -> Option<Kind> {
    let owner = listed.labels.get(OWNER_LABEL)?;
    // A file without an owner may name no labels: an index would panic.
    let is_own = one.entry.fields.get("labels").is_some_and(|labels| labels[OWNER_LABEL] == json!(owner));
    (!is_own && adoption == Adoption::Refused).then(|| {
        Kind::Refused(match listed.name == one.entry.name {
            true => format!("it belongs to the owner {owner}: choose another name, or adopt it by --take-over"),
            false => format!(
                "{} belongs to the owner {owner}: remove previous_name, or adopt it by --take-over",
                listed.name
            ),
        })
    })
}

/// The workflows of these teams that are not archived, by team and name.
async fn read_existing(client: &Client, teams: BTreeSet<i64>) -> anyhow::Result<Existing> {
    let mut existing = Existing::new();
    for team in teams {
        let query = [("team_id", team.to_string())];
        let found: Vec<WorkflowView> = client.read_list("/workflows", &query, usize::MAX).await?;
        existing.extend(found.into_iter().map(|workflow| ((team, workflow.name.clone()), workflow)));
    }
    Ok(existing)
}

async fn plan_entry(
    client: &Client,
    team: i64,
    one: &FileEntry,
    existing: Option<&WorkflowView>,
    adoption: Adoption,
) -> anyhow::Result<Step> {
    let planned = match existing {
        None => plan_creation(client, team, one).await,
        Some(listed) => match refuse_foreign(one, listed, adoption) {
            Some(refused) => Ok(refused),
            None => plan_change(client, one, listed).await,
        },
    };
    let kind = match planned {
        Ok(kind) => kind,
        // A refusal of the app is a step of the plan; any other failure ends the command.
        Err(error) if error.is::<Refusal>() => Kind::Refused(format!("{error:#}")),
        Err(error) => return Err(error),
    };
    Ok(Step { place: one.place(), name: one.entry.name.clone(), kind })
}

async fn plan_creation(client: &Client, team: i64, one: &FileEntry) -> anyhow::Result<Kind> {
    let mut body = one.entry.fields.clone();
    body.insert("team_id".to_owned(), json!(team));
    let body = Value::Object(body);
    let answer: Value = client.write(Method::POST, "/workflows", &dry_run(), &body).await?;
    Ok(Kind::Create { body, changes: answer["changes"].clone(), is_paused: one.entry.paused })
}

/// Plans the change of a workflow. One that has the previous name gets the new name by the same patch.
async fn plan_change(client: &Client, one: &FileEntry, listed: &WorkflowView) -> anyhow::Result<Kind> {
    let existing = read_complete(client, listed.clone()).await?;
    let (id, version) = (existing.id, existing.version);
    let patch = match make_merge_patch(&existing, &complete(one.entry.fields.clone())) {
        Ok(patch) => patch,
        Err(why) => return Ok(Kind::Refused(format!("{why:#}"))),
    };
    let answer: Value = client.merge(&format!("/workflows/{id}"), &dry_run(), &patch, version).await?;
    let begins = existing.cron_schedule.is_none() && existing.state == State::Active;
    let is_paused = one.entry.paused && begins && patch["cron_schedule"].is_string();
    Ok(match answer["changes"].as_array().is_none_or(Vec::is_empty) {
        true => Kind::Keep,
        false => Kind::Change { id, version, patch, changes: answer["changes"].clone(), is_paused },
    })
}

/// A field that the file leaves out gets its default.
fn complete(mut fields: Map<String, Value>) -> Map<String, Value> {
    for field in OPTIONAL {
        fields.entry(field.to_owned()).or_insert(Value::Null);
    }
    fields
}

impl Step {
    /// The archiving of a workflow that is in no file.
    fn prune(workflow: &WorkflowView) -> Self {
        Self { place: "in no file".to_owned(), name: workflow.name.clone(), kind: Kind::archive(workflow) }
    }

    fn to_json(&self, act: &str, changes: &Value, error: Option<&str>) -> Value {
        let paused = self.kind.is_paused();
        let (name, place) = (&self.name, &self.place);
        json!({"name": name, "place": place, "act": act, "paused": paused, "changes": changes, "error": error})
    }
}

impl Kind {
    fn archive(workflow: &WorkflowView) -> Self {
        Self::Archive { id: workflow.id, version: workflow.version }
    }

    fn is_paused(&self) -> bool {
        matches!(self, Self::Create { is_paused: true, .. } | Self::Change { is_paused: true, .. })
    }
}

impl FileEntry {
    /// The sentence about a workflow that keeps the previous name, because another one has the new name.
    fn say_unrenamed(&self, previous: &WorkflowView) -> String {
        let (place, new, old) = (self.place_of("previous_name"), &self.entry.name, &previous.name);
        format!(
            "{place}: previous_name: {old} still exists beside {new}, and runs too: archive {old}, or remove previous_name"
        )
    }

    /// The sentence about a workflow with the previous name, which `delete` does not archive.
    fn say_unarchived(&self, previous: &WorkflowView) -> String {
        let (place, new, old) = (self.place_of("previous_name"), &self.entry.name, &previous.name);
        format!(
            "{place}: previous_name: {old} exists, and only {new} is archived: `cronbox workflow archive` ends {old}"
        )
    }
}

impl Teams {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        let teams: Vec<ListedTeamView> = client.read_list("/teams", &[], usize::MAX).await?;
        let me: MeView = client.read("/me", &[]).await?;
        let own = match &me.teams[..] {
            [one] => Some(one.team_id),
            _ => None,
        };
        Ok(Self { by_name: teams.into_iter().map(|team| (team.name, team.id)).collect(), own })
    }

    fn find(&self, team: Option<&Team>, place: &str) -> anyhow::Result<i64> {
        match team {
            Some(Team::Numbered(id)) => Ok(*id),
            Some(Team::Named(name)) => self
                .by_name
                .get(name)
                .copied()
                .with_context(|| format!("{place}: there is no team {name}: `cronbox team ls` lists them")),
            None => self.own.with_context(|| format!("{place}: write `team:`, because your key is not of one team")),
        }
    }
}

/// The names of steps, for a sentence.
pub(super) fn list_names(steps: &[Step]) -> String {
    steps.iter().map(|step| one_line(&step.name)).collect::<Vec<_>>().join(", ")
}

impl Plan {
    /// Whether no step changes anything.
    pub(super) fn changes_nothing(&self) -> bool {
        self.names().is_empty()
    }

    /// How many steps the app refuses.
    pub(super) fn refused(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.kind, Kind::Refused(_))).count()
    }

    /// A sentence about the workflows that only `--prune` would archive; `None`: there is none.
    pub(super) fn unpruned_in_words(&self) -> Option<String> {
        let count = self.unpruned.len();
        let shown: Vec<_> = self.unpruned.iter().take(MOST_NAMES).map(|name| one_line(name)).collect();
        let more = if count > MOST_NAMES { format!(" and {} more", count - MOST_NAMES) } else { String::new() };
        let names = shown.join(", ");
        (count > 0).then(|| format!("in none of these files, so that --prune would archive it: {names}{more}"))
    }

    /// The names of the workflows that would change.
    pub(super) fn names(&self) -> Vec<&str> {
        let changed = self.planned().filter(|step| !matches!(step.kind, Kind::Keep | Kind::Refused(_)));
        changed.map(|step| step.name.as_str()).collect()
    }

    /// The workflows that are in no file and stay, because the app refuses a workflow of a file.
    fn kept_surplus(&self) -> &[Step] {
        if self.refused() > 0 { &self.surplus } else { &[] }
    }

    /// The steps that are tried.
    fn planned(&self) -> impl Iterator<Item = &Step> {
        let pruned: &[Step] = if self.refused() > 0 { &[] } else { &self.surplus };
        self.steps.iter().chain(pruned)
    }

    fn count(&self, is_counted: fn(&Kind) -> bool) -> usize {
        self.planned().filter(|step| is_counted(&step.kind)).count()
    }

    /// The plan as lines, as Terraform prints one.
    pub(super) fn in_words(&self) -> String {
        let mut text = String::new();
        for step in self.planned() {
            let (mark, what, changes) = match &step.kind {
                Kind::Create { changes, .. } => ("+", "create", Some(changes)),
                Kind::Change { changes, .. } => ("~", "change", Some(changes)),
                Kind::Archive { .. } => ("-", "archive", None),
                Kind::Refused(_) => ("!", "refused", None),
                Kind::Keep => continue,
            };
            let paused = if step.kind.is_paused() { ", paused" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mark} {what} {} ({}){paused}", one_line(&step.name), step.place);
            if let Kind::Refused(why) = &step.kind {
                let _ = writeln!(text, "    {}", one_line(why));
            }
            for line in changes.map(changes_in_words).unwrap_or_default().lines().skip(1) {
                let _ = writeln!(text, "  {line}");
            }
        }
        let created = self.count(|kind| matches!(kind, Kind::Create { .. }));
        let changed = self.count(|kind| matches!(kind, Kind::Change { .. }));
        let archived = self.count(|kind| matches!(kind, Kind::Archive { .. }));
        let kept = self.count(|kind| matches!(kind, Kind::Keep));
        let _ = write!(text, "Plan: {created} to create, {changed} to change, {archived} to archive, {kept} unchanged");
        let refused = self.refused();
        let _ = if refused > 0 { writeln!(text, ", {refused} refused.") } else { writeln!(text, ".") };
        if !self.kept_surplus().is_empty() {
            let kept = list_names(self.kept_surplus());
            let _ = writeln!(text, "Not pruned, because a workflow is refused: {kept}.");
        }
        text
    }

    /// The plan for programs.
    pub(super) fn to_json(&self) -> Value {
        let steps = self.planned().map(|step| {
            let (act, changes, why) = match &step.kind {
                Kind::Create { changes, .. } => ("create", changes.clone(), None),
                Kind::Change { changes, .. } => ("change", changes.clone(), None),
                Kind::Archive { .. } => ("archive", json!([]), None),
                Kind::Keep => ("keep", json!([]), None),
                Kind::Refused(why) => ("refused", json!([]), Some(why.as_str())),
            };
            step.to_json(act, &changes, why)
        });
        let why = Some("it is not pruned, because a workflow is refused");
        let kept = self.kept_surplus().iter().map(|step| step.to_json("keep", &json!([]), why));
        json!({ "steps": steps.chain(kept).collect::<Vec<_>>() })
    }
}
