//! Step 4 of 7: the pages in which EventBridge lists the schedules of a schedule group.
//!
//! A list has few fields (name, state, target, last change) and costs one call per hundred schedules. It decides which
//! few schedules to read in full.

use aws_sdk_scheduler::types::{ScheduleState, ScheduleSummary};
use chrono::{DateTime, Utc};

use super::client::{Schedules, utc_micros};
use crate::scheduler::fault::{self, Effect, Fault};
use crate::scheduler::lease::{Lease, SignWithinLease};

/// The maximum that EventBridge returns at once.
const PAGE: i32 = 100;
/// AWS allows 50 per second for the complete account.
pub(crate) const LISTS_PER_SEC: u32 = 40;

/// One page of the list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) schedules: Vec<Listed>,
    /// Where the list continues; `None` = this was the last page.
    pub(crate) next_token: Option<String>,
}

/// A schedule in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_enabled: bool,
    pub(crate) target_arn: Option<String>,
    pub(crate) created_on: Option<DateTime<Utc>>,
    pub(crate) modified_on: Option<DateTime<Utc>>,
}

impl Schedules {
    /// Lists the schedule group from `token` on; `None` = from its beginning.
    pub(crate) async fn list_page(&self, token: Option<String>, lease: &Lease) -> Result<Page, Fault> {
        let page = self
            .client
            .list_schedules()
            .group_name(&self.group)
            .max_results(PAGE)
            .set_next_token(token)
            .customize()
            .interceptor(SignWithinLease(lease.clone()))
            .send()
            .await
            // A read has no effect, whatever its result.
            .map_err(|error| Fault { effect: Effect::None, ..fault::classify_error(&error) })?;
        Ok(Page {
            schedules: page.schedules.into_iter().filter_map(listed).collect(),
            next_token: page.next_token.filter(|token| !token.is_empty()),
        })
    }
}

fn listed(summary: ScheduleSummary) -> Option<Listed> {
    Some(Listed {
        name: summary.name?,
        is_enabled: summary.state.is_none_or(|state| state == ScheduleState::Enabled),
        target_arn: summary.target.map(|target| target.arn),
        created_on: summary.creation_date.and_then(utc_micros),
        modified_on: summary.last_modification_date.and_then(utc_micros),
    })
}
