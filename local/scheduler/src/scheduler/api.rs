//! Step 4 of 7: Scheduler's REST API.
//!
//! AWS's casing of parameters differs between operations: bodies and the queries of the lists are Pascal case, the
//! queries of get and delete are lower camel case.

use std::collections::BTreeMap;

use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Scheduler;
use super::constraint::{Pattern, Violations};
use super::error::Error;
use super::faults::injection::{View, inject_fault};
use super::groups::{DEFAULT, NewGroup};
use super::list::Filter;
use super::request::{Payload, Region};
use super::spec::Spec;
use super::stored_schedule::Key;
use super::views::{GroupView, ScheduleSummary, ScheduleView};
use super::wire::{PutGroup, PutSchedule, Tag, Tags};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const DEFAULT_PAGE: usize = 100;

type Answer = Result<Json<Value>, Error>;

/// The twelve operations.
pub fn scheduler_router(scheduler: Scheduler) -> Router {
    Router::new()
        .route("/schedules", get(list_schedules))
        .route(
            "/schedules/{name}",
            post(create_schedule).put(update_schedule).get(get_schedule).delete(delete_schedule),
        )
        .route("/schedule-groups", get(list_groups))
        .route("/schedule-groups/{name}", post(create_group).get(get_group).delete(delete_group))
        .route("/tags/{*arn}", get(list_tags).post(tag_group).delete(untag_group))
        .fallback(async || Error::UnknownOperation)
        .method_not_allowed_fallback(async || Error::UnknownOperation)
        .layer(from_fn_with_state(scheduler.clone(), inject_fault))
        .layer(from_fn_with_state(scheduler.clone(), take_time))
        .with_state(scheduler)
}

/// Gives each call the configured latency, counts it against the quota, and gives it an id.
async fn take_time(State(scheduler): State<Scheduler>, request: Request, next: Next) -> Response {
    if !scheduler.0.latency.is_zero() {
        tokio::time::sleep(scheduler.0.latency).await;
    }
    let mut response = match scheduler.0.quota.count_call() {
        Ok(()) => next.run(request).await,
        Err(throttled) => throttled.into_response(),
    };
    if let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

async fn create_schedule(
    State(scheduler): State<Scheduler>,
    Region(region): Region,
    Path(name): Path<String>,
    Payload(put): Payload<PutSchedule>,
) -> Answer {
    let (now, key, token) = (scheduler.0.clock.now(), key(put.group_name.clone(), &name), put.client_token.clone());
    let spec = Spec::from_request(&name, put, &scheduler.0.zone_files, now)?;
    let arn = scheduler.lock_store().create_schedule(key, spec, token, region, now)?;
    scheduler.0.changed.notify_one();
    Ok(Json(json!({ "ScheduleArn": arn })))
}

async fn update_schedule(
    State(scheduler): State<Scheduler>,
    Path(name): Path<String>,
    Payload(put): Payload<PutSchedule>,
) -> Answer {
    let (now, key) = (scheduler.0.clock.now(), key(put.group_name.clone(), &name));
    let spec = Spec::from_request(&name, put, &scheduler.0.zone_files, now)?;
    let arn = scheduler.lock_store().update_schedule(key, spec, now)?;
    scheduler.0.changed.notify_one();
    Ok(Json(json!({ "ScheduleArn": arn })))
}

/// The query of `GetSchedule`, `DeleteSchedule` and `DeleteScheduleGroup`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfGroup {
    group_name: Option<String>,
    client_token: Option<String>,
}

impl OfGroup {
    fn key(self, name: &str) -> Result<Key, Error> {
        let mut violations = Violations::default();
        violations.check_name("name", name);
        if let Some(group) = &self.group_name {
            violations.check_name("groupName", group);
        }
        violations.check_token(self.client_token.as_deref());
        violations.into_result()?;
        Ok(key(self.group_name, name))
    }
}

async fn get_schedule(
    State(scheduler): State<Scheduler>,
    Extension(view): Extension<View>,
    Path(name): Path<String>,
    Query(query): Query<OfGroup>,
) -> Answer {
    let schedule = scheduler.lock_store().get_past(&query.key(&name)?, view.changes_back)?;
    Ok(Json(json!(ScheduleView::from(&*schedule))))
}

async fn delete_schedule(
    State(scheduler): State<Scheduler>,
    Path(name): Path<String>,
    Query(query): Query<OfGroup>,
) -> Answer {
    let now = scheduler.0.clock.now();
    scheduler.lock_store().delete_schedule(&query.key(&name)?, now)?;
    scheduler.0.changed.notify_one();
    Ok(Json(json!({})))
}

/// The query of the two lists.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListQuery {
    schedule_group: Option<String>,
    name_prefix: Option<String>,
    state: Option<String>,
    max_results: Option<String>,
    next_token: Option<String>,
}

impl ListQuery {
    fn check(&self) -> Result<(usize, Option<Key>), Error> {
        let mut violations = Violations::default();
        if let Some(group) = &self.schedule_group {
            violations.check_name("groupName", group);
        }
        if let Some(prefix) = &self.name_prefix {
            violations.check_name("namePrefix", prefix);
        }
        if let Some(state) = &self.state {
            violations.check_one_of("state", state, &["ENABLED", "DISABLED"]);
        }
        let limit = self.max_results.as_deref().map(str::parse::<i64>).transpose();
        let limit = limit.map_err(|_| Error::Serialization("MaxResults is not a number".to_owned()))?;
        if let Some(limit) = limit {
            violations.check_range("maxResults", limit, 1, 100);
        }
        if let Some(token) = &self.next_token {
            violations.check_length("nextToken", token, 1, 2048);
        }
        violations.into_result()?;
        let after = self.next_token.as_deref().map(read_token).transpose()?;
        Ok((limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_PAGE), after))
    }
}

async fn list_schedules(
    State(scheduler): State<Scheduler>,
    Extension(view): Extension<View>,
    Query(query): Query<ListQuery>,
) -> Answer {
    let (limit, after) = query.check()?;
    let filter = Filter { group: query.schedule_group, name_prefix: query.name_prefix, state: query.state };
    let page = match view.changes_back {
        0 => scheduler.lock_store().list_schedules(&filter, after, limit)?,
        back => scheduler.lock_store().list_past(&filter, after, limit, back)?,
    };
    let items: Vec<_> = page.items.iter().map(|schedule| ScheduleSummary::from(&**schedule)).collect();
    Ok(list("Schedules", json!(items), page.last))
}

async fn create_group(
    State(scheduler): State<Scheduler>,
    Region(region): Region,
    Path(name): Path<String>,
    Payload(put): Payload<PutGroup>,
) -> Answer {
    let mut violations = Violations::default();
    violations.check_name("name", &name);
    violations.check_token(put.client_token.as_deref());
    check_tags(&mut violations, &put.tags);
    violations.into_result()?;
    let new = NewGroup { name, tags: put.tags, client_token: put.client_token };
    let now = scheduler.0.clock.now();
    let arn = scheduler.lock_store().create_group_in(region, new, now)?;
    Ok(Json(json!({ "ScheduleGroupArn": arn })))
}

async fn get_group(State(scheduler): State<Scheduler>, Region(region): Region, Path(name): Path<String>) -> Answer {
    let mut violations = Violations::default();
    violations.check_name("name", &name);
    violations.into_result()?;
    let mut store = scheduler.lock_store();
    Ok(Json(json!(GroupView::in_region(store.groups().get(&name)?, region.as_deref()))))
}

async fn delete_group(
    State(scheduler): State<Scheduler>,
    Path(name): Path<String>,
    Query(query): Query<OfGroup>,
) -> Answer {
    let name = query.key(&name)?.name;
    let now = scheduler.0.clock.now();
    let takes = scheduler.faults().group_deletion();
    scheduler.lock_store().delete_group(&name, takes, now)?;
    scheduler.0.changed.notify_one();
    Ok(Json(json!({})))
}

async fn list_groups(
    State(scheduler): State<Scheduler>,
    Region(region): Region,
    Query(query): Query<ListQuery>,
) -> Answer {
    let (limit, after) = query.check()?;
    let page =
        scheduler.lock_store().groups().list_groups(query.name_prefix.as_deref().unwrap_or_default(), after, limit);
    let items: Vec<_> = page.items.iter().map(|group| GroupView::in_region(group, region.as_deref())).collect();
    Ok(list("ScheduleGroups", json!(items), page.last))
}

async fn list_tags(State(scheduler): State<Scheduler>, Path(arn): Path<String>) -> Answer {
    check_group_arn(&arn)?;
    let mut store = scheduler.lock_store();
    let tags = &store.groups().find_by_arn(&arn)?.tags;
    let tags = tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect();
    Ok(Json(json!(Tags { tags })))
}

async fn tag_group(State(scheduler): State<Scheduler>, Path(arn): Path<String>, Payload(new): Payload<Tags>) -> Answer {
    let mut violations = Violations::default();
    violations.check_pattern("resourceArn", &arn, Pattern::GroupArn);
    check_tags(&mut violations, &new.tags);
    violations.into_result()?;
    let now = scheduler.0.clock.now();
    let mut store = scheduler.lock_store();
    let group = store.groups().find_by_arn(&arn)?;
    group.tags.extend(new.tags.into_iter().map(|tag| (tag.key, tag.value)));
    group.modified_on = now;
    Ok(Json(json!({})))
}

async fn untag_group(
    State(scheduler): State<Scheduler>,
    Path(arn): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer {
    check_group_arn(&arn)?;
    let now = scheduler.0.clock.now();
    let mut store = scheduler.lock_store();
    let group = store.groups().find_by_arn(&arn)?;
    for (_, key) in query.iter().filter(|(name, _)| name == "TagKeys") {
        group.tags.remove(key);
    }
    group.modified_on = now;
    Ok(Json(json!({})))
}

fn check_group_arn(arn: &str) -> Result<(), Error> {
    let mut violations = Violations::default();
    violations.check_pattern("resourceArn", arn, Pattern::GroupArn);
    violations.into_result()
}

fn check_tags(violations: &mut Violations, tags: &[Tag]) {
    for tag in tags {
        violations.check_length("tags.key", &tag.key, 1, 128);
        violations.check_length("tags.value", &tag.value, 1, 256);
    }
}

fn key(group: Option<String>, name: &str) -> Key {
    Key { group: group.unwrap_or_else(|| DEFAULT.to_owned()), name: name.to_owned() }
}

fn list(field: &str, items: Value, last: Option<Key>) -> Json<Value> {
    let mut answer = BTreeMap::from([(field, items)]);
    if let Some(last) = last {
        // No name contains a `/`, so the two parts are unambiguous.
        answer.insert("NextToken", json!(const_hex::encode(format!("{}/{}", last.group, last.name))));
    }
    Json(json!(answer))
}

fn read_token(token: &str) -> Result<Key, Error> {
    let text = const_hex::decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.as_deref()
        .and_then(|text| text.split_once('/'))
        .map(|(group, name)| Key { group: group.to_owned(), name: name.to_owned() })
        .ok_or_else(|| Error::Validation("Invalid NextToken.".to_owned()))
}
