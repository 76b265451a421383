//! Step 1 of 7: the API of the audit log: list it, export it as JSON lines, and verify it by its hash chain.

use api_types::audit::{AuditDifferenceView, AuditVerifyView, AuditView, ChainEndView};
use api_types::raw::RawJson;
use std::time::Duration;

use access::rights::Scope;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::audit::list::{Filter, LoggedEntry, export_entries, list_entries};
use workflows::audit::verify::{self, ChainEnd, Difference};
use workflows::definition::field::{self, FieldError};
use workflows::keyset::KeysetPage;

use crate::App;
use crate::api::request::auth::{Auditor, Caller, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::{ViewFrom, to_view};

/// Entries of an export if the client names no limit, and at most.
const EXPORT_LIMIT: i64 = 1_000;
/// How many entries of an export are read at once.
const EXPORT_READ: i64 = 50;
/// Bytes of an export at most, except for its first line.
const EXPORT_BYTES: usize = 4 * 1024 * 1024;
/// The header of an export with the cursor of the next one.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("next-cursor");
/// After this time a verification begins no further batch; a request takes this long, and one batch.
const VERIFY_PATIENCE: Duration = Duration::from_secs(1);
/// Blocks of an earlier verification in one request at most.
const MOST_BLOCKS: usize = 500;
/// Characters of a filter at most.
const LONGEST_FILTER: usize = 300;

/// Filters of a list of entries.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only of this object, for example `workflow:12`.
    subject: Option<String>,
    /// Only with this verb, for example `update`.
    verb: Option<String>,
    /// Only of this actor, or of keys with this name.
    actor: Option<String>,
    /// Only of this team's objects.
    team_id: Option<i64>,
    /// From this time on.
    from: Option<DateTime<Utc>>,
    /// Before this time.
    to: Option<DateTime<Utc>>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Filters of an export.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportParams {
    /// Only of this object, for example `workflow:12`.
    subject: Option<String>,
    /// Only with this verb, for example `update`.
    verb: Option<String>,
    /// Only of this actor, or of keys with this name.
    actor: Option<String>,
    /// Only of this team's objects.
    team_id: Option<i64>,
    /// From this time on.
    from: Option<DateTime<Utc>>,
    /// Before this time.
    to: Option<DateTime<Utc>>,
    /// Lines, 1 to 1,000.
    limit: Option<i64>,
    /// The header `Next-Cursor` of the previous export; absent: from the oldest entry on.
    cursor: Option<String>,
}

/// Where a verification continues, and what it returns besides.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditVerifyParams {
    /// `next_cursor` of the previous answer.
    cursor: Option<String>,
    /// Ends of an earlier verification, `team:sequence` with commas between them, 500 at most; team 0: entries without
    /// a team. For example `0:12,7:3`. The answer has these blocks as they are now.
    blocks: Option<String>,
}

/// List entries of the audit log, the newest first: those of the caller's team, or all for an admin.
#[utoipa::path(get, path = "/api/v1/audit", tag = "operations", params(AuditParams),
    responses((status = 200, body = Page<AuditView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_audit(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<AuditParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let AuditParams { subject, verb, actor, team_id, from, to, .. } = params;
    let filter = Filter { team_id, subject, verb, actor, from, to, ..Filter::default() };
    let found = match filter_for(&caller, filter)? {
        Some(filter) => {
            let mut tx = begin_read(&app).await?;
            let found = list_entries(&mut tx, &filter, before, limit).await.map_err(failed_read)?;
            tx.commit().await?;
            found
        }
        None => KeysetPage::empty(),
    };
    page::answer_page(found, |entry| entry.id, AuditView::view_from).await
}

/// Export entries of the audit log as JSON lines, the oldest first. A follower repeats it with the header `Next-Cursor`:
/// no entry is skipped, also if its transaction commits late.
#[utoipa::path(get, path = "/api/v1/audit:export", tag = "operations", params(ExportParams),
    responses((status = 200, body = String, content_type = "application/x-ndjson",
               headers(("Next-Cursor" = String, description = "Send it as `cursor`; the same as before: there is nothing newer"))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn export_audit(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<ExportParams>,
) -> Result<Response, Error> {
    let limit = match params.limit {
        None => EXPORT_LIMIT,
        Some(limit) if (1..=EXPORT_LIMIT).contains(&limit) => limit,
        Some(_) => return Err(FieldError::invalid("limit", format!("limit must be from 1 to {EXPORT_LIMIT}")).into()),
    };
    let after: i64 = page::parse_cursor(params.cursor.as_deref())?.unwrap_or_default();
    let ExportParams { subject, verb, actor, team_id, from, to, .. } = params;
    let filter = Filter { team_id, subject, verb, actor, from, to, ..Filter::default() };
    let Some(filter) = filter_for(&caller, filter)? else { return answer_lines(Vec::new(), after) };
    let mut tx = begin_read(&app).await?;
    let mut export = Export::after(after);
    // Some entries at a time: a thousand large ones would be many times the answer.
    while export.count < limit && !export.is_full {
        let most = EXPORT_READ.min(limit - export.count);
        let found = export_entries(&mut tx, &filter, export.last, most).await.map_err(failed_read)?;
        let is_end = i64::try_from(found.rows.len()) != Ok(most);
        export.add_page(found)?;
        if is_end {
            break;
        }
    }
    tx.commit().await?;
    answer_lines(export.lines, export.last)
}

/// Verify the audit log: compute its hash chain again, and list where entries were changed, removed or inserted.
///
/// A long log is answered in parts: follow `next_cursor` to its end.
#[utoipa::path(get, path = "/api/v1/audit:verify", tag = "operations", params(AuditVerifyParams),
    responses((status = 200, body = AuditVerifyView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn verify_audit(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<AuditVerifyParams>,
) -> Result<Json<AuditVerifyView>, Error> {
    let after: i64 = page::parse_cursor(params.cursor.as_deref())?.unwrap_or_default();
    let blocks = parse_blocks(params.blocks.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let part = verify::verify_part(&mut tx, after, VERIFY_PATIENCE).await.map_err(failed_read)?;
    let Some(verified) = part else { return Err(page::foreign_cursor().into()) };
    let ends = match verified.has_more {
        true => Vec::new(),
        false => verify::list_chain_ends(&mut tx).await.map_err(failed_read)?,
    };
    let blocks = match blocks.is_empty() {
        true => Vec::new(),
        false => verify::find_blocks(&mut tx, &blocks).await.map_err(failed_read)?,
    };
    tx.commit().await?;
    Ok(Json(AuditVerifyView {
        entries: verified.entries,
        anchors: verified.anchors,
        differences: verified.differences.into_iter().map(AuditDifferenceView::view_from).collect(),
        through_id: verified.through_id,
        ends: ends.into_iter().map(ChainEndView::view_from).collect(),
        blocks: blocks.into_iter().map(ChainEndView::view_from).collect(),
        next_cursor: verified.has_more.then(|| page::encode_cursor(verified.through_id)),
    }))
}

/// Parses `team:sequence,team:sequence`.
fn parse_blocks(text: Option<&str>) -> Result<Vec<(i64, i64)>, FieldError> {
    let parse = |block: &str| {
        let (team, sequence) = block.split_once(':')?;
        Some((team.parse().ok()?, sequence.parse().ok()?))
    };
    let blocks: Option<Vec<_>> = text.map_or(Some(Vec::new()), |text| text.split(',').map(parse).collect());
    blocks.filter(|blocks| blocks.len() <= MOST_BLOCKS).ok_or_else(|| {
        let sentence = format!("blocks must be team:sequence with commas between them, at most {MOST_BLOCKS}");
        FieldError::invalid("blocks", sentence)
    })
}

/// Returns the filter for this caller, whose team it is restricted to; `None`: it names another team, which has no
/// entries for the caller, like a team that does not exist.
fn filter_for(caller: &Caller, filter: Filter) -> Result<Option<Filter>, Error> {
    for (name, text) in [("subject", &filter.subject), ("verb", &filter.verb), ("actor", &filter.actor)] {
        text.as_deref().map_or(Ok(()), |text| field::check_text(name, text, 0, LONGEST_FILTER))?;
    }
    for (name, time) in [("from", filter.from), ("to", filter.to)] {
        time.map_or(Ok(()), |time| field::check_instant(name, time).map(drop))?;
    }
    let team_id = match filter.team_id {
        Some(requested) if caller.in_team(requested).is_none() => return Ok(None),
        Some(requested) => Some(requested),
        None if caller.has_to_choose() => {
            let detail = "you belong to several teams: send team_id";
            return Err(FieldError::new("missing_field", "team_id", detail).into());
        }
        None => caller.team_id,
    };
    let is_for_members = !caller.permits(Scope::Auditor);
    // The entries of all teams, and those without a team.
    if team_id.is_none() && is_for_members {
        return Err(Error::forbidden("send team_id, or use a key with the scope auditor"));
    }
    Ok(Some(Filter { team_id, is_for_members, ..filter }))
}

/// The lines of an export.
struct Export {
    lines: Vec<u8>,
    count: i64,
    /// The next export begins after this id.
    last: i64,
    /// Whether the next entry would have been too much.
    is_full: bool,
}

impl Export {
    fn after(last: i64) -> Self {
        Self { lines: Vec::new(), count: 0, last, is_full: false }
    }

    /// Adds entries as lines until the answer is full of bytes.
    fn add_page(&mut self, found: KeysetPage<LoggedEntry, i64>) -> anyhow::Result<()> {
        for entry in found.rows {
            let id = entry.id;
            let line = serde_json::to_vec(&AuditView::view_from(entry))?;
            if self.count > 0 && self.lines.len() + line.len() > EXPORT_BYTES {
                self.is_full = true;
                return Ok(());
            }
            self.lines.extend(line);
            self.lines.push(b'\n');
            (self.count, self.last) = (self.count + 1, id);
        }
        self.last = found.next.unwrap_or(self.last);
        Ok(())
    }
}

fn answer_lines(lines: Vec<u8>, last: i64) -> Result<Response, Error> {
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson".to_owned()), (NEXT_CURSOR, page::encode_cursor(last))];
    Ok((headers, lines).into_response())
}

impl ViewFrom<LoggedEntry> for AuditView {
    fn view_from(entry: LoggedEntry) -> Self {
        Self {
            id: entry.id,
            at: entry.at,
            actor: entry.actor,
            actor_name: entry.actor_name,
            source_address: entry.source_address,
            trace_id: entry.trace_id,
            verb: entry.verb,
            subject: entry.subject,
            team_id: entry.team_id,
            before: entry.before.and_then(RawJson::of_text),
            after: entry.after.and_then(RawJson::of_text),
        }
    }
}

impl ViewFrom<Difference> for AuditDifferenceView {
    fn view_from(Difference { kind, team_id, after_id, through_id }: Difference) -> Self {
        Self { kind: to_view(kind), team_id, after_id, through_id }
    }
}

impl ViewFrom<ChainEnd> for ChainEndView {
    fn view_from(ChainEnd { team_id, sequence, hash }: ChainEnd) -> Self {
        Self { team_id, sequence, hash: hash.iter().map(|byte| format!("{byte:02x}")).collect() }
    }
}
