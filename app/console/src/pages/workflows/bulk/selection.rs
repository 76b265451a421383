//! Which workflows a bulk operation is for: the ids that the list sends, or all that match its filters.
//!
//! An operation belongs to one team. So a selection of several teams becomes one operation for each.

use std::collections::BTreeMap;

use api_types::bulk::BulkVerb;
use api_types::keys::Kind;
use api_types::me::MeView;
use api_types::page::Page;
use api_types::workflows::WorkflowView;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::failure::Failure;
use crate::form::parse_time;
use crate::pages::workflows::last_result;
use crate::query::with_query;
use crate::times;

/// Requests of 200 workflows each: as many ids as an operation may name.
const PAGES: usize = 5;
/// Teams of one selection.
const MOST_TEAMS: usize = 10;
/// From when on runs are repeated, if the visitor does not choose.
const USUAL_HOURS: i64 = 24;

/// Names of workflows, by their ids.
pub(super) type Names = BTreeMap<i64, String>;

/// The fields of the list, and those of the preview.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fields {
    pub(super) verb: String,
    /// `12`, or with the team `12@3`.
    pub(super) id: Vec<String>,
    pub(super) all: String,
    pub(super) q: String,
    pub(super) state: String,
    pub(super) sync: String,
    pub(super) paused_by: String,
    pub(super) last_result: String,
    pub(super) failures_in_a_row: String,
    pub(super) label: String,
    pub(super) team_id: String,
    /// With `retry`: only runs of the last hours.
    pub(super) hours: String,
    pub(super) reason: String,
    pub(super) until: String,
    /// When the preview was made: later runs are not selected.
    pub(super) at: String,
    /// How many the preview has counted of each team: `3@7` are 3 of team 7. Not sent with `cancel`, because runs end.
    pub(super) total: Vec<String>,
}

/// What is selected of each team.
pub(super) struct Selection {
    pub(super) teams: Vec<Selected>,
    pub(super) names: Names,
}

/// What is selected of a team: the filter of the API.
#[derive(Debug, PartialEq)]
pub(super) struct Selected {
    pub(super) team_id: i64,
    pub(super) filter: Value,
}

pub(super) fn is_of_runs(verb: BulkVerb) -> bool {
    matches!(verb, BulkVerb::Retry | BulkVerb::Cancel)
}

impl Fields {
    pub(super) fn parse_verb(&self) -> Result<BulkVerb, Failure> {
        serde_json::from_value(json!(self.verb)).map_err(|_| Failure::of_request("there is no such verb"))
    }

    pub(super) fn path_of_preview(&self) -> String {
        let verb = ("verb", self.verb.clone());
        let parameters: Vec<_> = [verb].into_iter().chain(self.selecting()).collect();
        with_query("/workflows/bulk", parameters.iter().map(|(name, value)| (*name, Some(&**value))))
    }

    /// The fields that select. With `all` the ids of the page mean nothing, and without it the filters only find names.
    pub(super) fn selecting(&self) -> Vec<(&'static str, String)> {
        let ids = self.id.iter().filter(|_| self.all != "true").map(|id| ("id", id.clone()));
        let all = Some(("all", self.all.clone())).filter(|(_, all)| all == "true");
        let filters = self.filters().into_iter().map(|(name, value)| (name, value.to_owned()));
        let fields = ids.chain(all).chain(filters).chain([("hours", self.hours.clone())]);
        fields.filter(|(_, value)| !value.is_empty()).collect()
    }

    fn filters(&self) -> [(&'static str, &str); 8] {
        [
            ("q", &self.q),
            ("state", &self.state),
            ("sync", &self.sync),
            ("paused_by", &self.paused_by),
            ("last_result", &self.last_result),
            ("failures_in_a_row", &self.failures_in_a_row),
            ("label", &self.label),
            ("team_id", &self.team_id),
        ]
    }

    /// When the preview was made, or now.
    fn time_of_preview(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, Failure> {
        Ok(parse_time("at", &self.at)?.unwrap_or(now))
    }

    /// How many the preview has counted of a team; `None`: the form did not come from a preview.
    ///
    /// # Errors
    /// Fails if the preview had not this team.
    pub(super) fn expected_total(&self, team_id: i64) -> Result<Option<i64>, Failure> {
        let totals = self.total.iter().filter_map(|text| text.split_once('@'));
        let of_team =
            totals.filter(|(_, team)| team.parse::<i64>() == Ok(team_id)).find_map(|(total, _)| total.parse().ok());
        match of_team {
            None if !self.total.is_empty() => Err(Failure::of_changed_selection()),
            of_team => Ok(of_team),
        }
    }

    /// From when on runs are repeated.
    fn since(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now - TimeDelta::try_hours(self.hours.parse().unwrap_or(USUAL_HOURS)).unwrap_or_default()
    }

    /// The filter that selects the same as those of the list; `None` if the API has no such filter.
    fn filter_of_all(&self, verb: BulkVerb, now: DateTime<Utc>) -> Option<Value> {
        let others = [&self.sync, &self.paused_by, &self.last_result, &self.failures_in_a_row, &self.label];
        let has_others = others.into_iter().any(|value| !value.is_empty());
        let has_own = !self.q.is_empty() || !self.state.is_empty();
        if has_others || is_of_runs(verb) && has_own {
            return None;
        }
        let value = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Some(match is_of_runs(verb) {
            true => self.filter_of_runs(verb, None, now),
            false => json!({ "q": value(&self.q), "state": value(&self.state) }),
        })
    }

    fn filter_of_ids(&self, verb: BulkVerb, ids: &[i64], now: DateTime<Utc>) -> Value {
        if is_of_runs(verb) { self.filter_of_runs(verb, Some(ids), now) } else { json!({ "workflow_ids": ids }) }
    }

    /// Runs that failed of late, or that have not ended. Of a retry without states the API selects the failures.
    fn filter_of_runs(&self, verb: BulkVerb, ids: Option<&[i64]>, now: DateTime<Utc>) -> Value {
        let to = times::end_of_selection(&now);
        match verb {
            BulkVerb::Retry => json!({
                "workflow_ids": ids,
                "from": times::for_machines(&self.since(now)),
                "to": to,
            }),
            _ => json!({ "workflow_ids": ids, "to": to }),
        }
    }
}

/// Finds out what is selected, team by team.
pub(super) async fn select(api: &Api, me: &MeView, fields: &Fields, verb: BulkVerb) -> Result<Selection, Failure> {
    let team = fields.team_id.parse().ok().or_else(|| only_team(me));
    let at = fields.time_of_preview(api.now())?;
    if fields.all == "true" {
        if let (Some(team_id), Some(filter)) = (team, fields.filter_of_all(verb, at)) {
            let (found, _) = list(api, fields, 1).await?;
            return Ok(Selection { teams: vec![Selected { team_id, filter }], names: names_of(&found) });
        }
        let (found, is_complete) = list(api, fields, PAGES).await?;
        if !is_complete {
            return Err(Failure::of_request(
                "more than 1,000 workflows match: filter further, or by one team and its names and states only",
            ));
        }
        let ids = found.iter().map(|workflow| (workflow.team_id, workflow.id));
        return Ok(Selection { teams: by_team(fields, verb, ids, at)?, names: names_of(&found) });
    }
    // One request, however many are selected. What it does not find is named by its id.
    let (found, _) = list(api, fields, 1).await?;
    let known: BTreeMap<i64, i64> = found.iter().map(|workflow| (workflow.id, workflow.team_id)).collect();
    let mut ids = Vec::with_capacity(fields.id.len());
    for text in &fields.id {
        let (id, sent) = parse_id(text).ok_or_else(|| Failure::of_request("a selected id is not valid"))?;
        let team_id = sent.or_else(|| known.get(&id).copied()).or(team);
        let team_id = team_id.ok_or_else(|| {
            Failure::of_request("the team of a selected workflow is not known: filter the list by its team")
        })?;
        ids.push((team_id, id));
    }
    Ok(Selection { teams: by_team(fields, verb, ids.into_iter(), at)?, names: names_of(&found) })
}

fn by_team(
    fields: &Fields,
    verb: BulkVerb,
    ids: impl Iterator<Item = (i64, i64)>,
    now: DateTime<Utc>,
) -> Result<Vec<Selected>, Failure> {
    let mut teams: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (team_id, id) in ids {
        teams.entry(team_id).or_default().push(id);
    }
    match teams.len() {
        0 => Err(Failure::of_request("no workflow is selected: go back to the list and select some")),
        1..=MOST_TEAMS => Ok(teams
            .into_iter()
            .map(|(team_id, ids)| Selected { team_id, filter: fields.filter_of_ids(verb, &ids, now) })
            .collect()),
        _ => Err(Failure::of_request("the selection has more than 10 teams: filter the list by a team")),
    }
}

/// The workflows that match the filters, and whether these are all.
async fn list(api: &Api, fields: &Fields, pages: usize) -> Result<(Vec<WorkflowView>, bool), Failure> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..pages {
        let shown = [("limit", "200"), ("cursor", cursor.as_deref().unwrap_or_default())];
        let filters = last_result::as_parameters(fields.filters());
        let path = with_query("/workflows", filters.into_iter().chain(shown).map(|(name, value)| (name, Some(value))));
        let page: Page<WorkflowView> = api.get(&path).await?;
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

fn names_of(found: &[WorkflowView]) -> Names {
    found.iter().map(|workflow| (workflow.id, workflow.name.clone())).collect()
}

/// `12` or `12@3`: the workflow, and its team.
fn parse_id(text: &str) -> Option<(i64, Option<i64>)> {
    match text.split_once('@') {
        Some((id, team)) => Some((id.parse().ok()?, Some(team.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    }
}

/// The team of a caller that has no choice.
fn only_team(me: &MeView) -> Option<i64> {
    match &me.teams[..] {
        [only] if me.kind != Kind::Admin => Some(only.team_id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields { verb: "pause".into(), id: vec!["1@7".into(), "2".into()], q: "a b".into(), ..Fields::default() }
    }

    #[test]
    fn the_address_of_a_preview_has_the_selection() {
        let path = fields().path_of_preview();
        assert_eq!(path, "/workflows/bulk?verb=pause&id=1%407&id=2&q=a+b");
        let all = Fields { all: "true".into(), ..fields() };
        assert_eq!(all.path_of_preview(), "/workflows/bulk?verb=pause&all=true&q=a+b");
    }

    /// A filter that the API does not have must not be left out: the operation would be for others, too.
    #[test]
    fn filters_that_the_api_lacks_are_not_dropped() {
        let now = DateTime::UNIX_EPOCH;
        let all = Fields { all: "true".into(), ..fields() };
        assert_eq!(all.filter_of_all(BulkVerb::Pause, now), Some(json!({"q": "a b", "state": null})));
        assert_eq!(all.filter_of_all(BulkVerb::Cancel, now), None);
        let labelled = Fields { label: "owner:pay".into(), q: String::new(), ..all };
        assert_eq!(labelled.filter_of_all(BulkVerb::Pause, now), None);
        assert_eq!(labelled.filter_of_all(BulkVerb::Retry, now), None);
    }

    #[test]
    fn each_team_has_its_own_operation() {
        let ids = [(7, 1), (8, 2), (7, 3)].into_iter();
        let selected = by_team(&fields(), BulkVerb::Fire, ids, DateTime::UNIX_EPOCH).unwrap();
        let expected = [
            Selected { team_id: 7, filter: json!({"workflow_ids": [1, 3]}) },
            Selected { team_id: 8, filter: json!({"workflow_ids": [2]}) },
        ];
        assert_eq!(selected, expected);
    }

    #[test]
    fn teams_without_a_preview_are_refused() {
        let seen = Fields { total: vec!["3@7".into(), "10@8".into()], ..fields() };
        assert_eq!(seen.expected_total(7).unwrap(), Some(3));
        assert_eq!(seen.expected_total(8).unwrap(), Some(10));
        assert!(seen.expected_total(9).is_err());
        assert_eq!(fields().expected_total(9).unwrap(), None);
    }

    #[test]
    fn only_late_failures_are_repeated() {
        let now = "2026-11-27T12:00:00Z".parse().unwrap();
        let filter = fields().filter_of_ids(BulkVerb::Retry, &[1], now);
        assert_eq!((&filter["from"], &filter["workflow_ids"]), (&json!("2026-11-26T12:00:00Z"), &json!([1])));
        assert_eq!(filter["to"], "2026-11-27T12:00:00.001Z", "no run that comes after the preview");
        let week = Fields { hours: "168".into(), ..fields() }.filter_of_ids(BulkVerb::Retry, &[1], now);
        assert_eq!(week["from"], "2026-11-20T12:00:00Z");
    }
}
