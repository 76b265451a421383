//! Manual changes in AWS's console, without the publisher.

use serde_json::{Value, json};
use stand_in::scheduler::views::ScheduleView;

use super::{Filter, GROUP, History};

/// A manual change.
#[derive(Clone, Copy, Debug)]
enum Hand {
    Deletes,
    Disables,
    Retimes,
    Invents,
}

impl History<'_> {
    pub(super) async fn change_manually(&mut self) {
        let hand =
            self.dice.weighted(&[(3, Hand::Deletes), (2, Hand::Disables), (2, Hand::Retimes), (1, Hand::Invents)]);
        let (Some(hand), Some(mut schedule)) = (hand, self.any_existing()) else { return };
        let mut name = schedule["Name"].as_str().unwrap_or_default().to_owned();
        let method = match hand {
            Hand::Deletes => "DELETE",
            Hand::Disables => {
                schedule["State"] = json!("DISABLED");
                "PUT"
            }
            Hand::Retimes => {
                schedule["ScheduleExpression"] = json!("cron(1 1 1 1 ? *)");
                "PUT"
            }
            Hand::Invents => {
                // No workflow of a history has this id.
                name = format!("wf-{}-dev", self.dice.between(900, 902));
                "POST"
            }
        };
        let status = self
            .wire
            .write_manually(method, &format!("/schedules/{name}?groupName={GROUP}"), &schedule.to_string())
            .await;
        self.coverage.manual_changes += u32::from(status == Some(200));
        self.note(format!("manually: {hand:?} {name}: {status:?}"));
    }

    fn any_existing(&self) -> Option<Value> {
        let all = Filter { group: Some(GROUP.to_owned()), ..Filter::default() };
        let page = self.scheduler.lock_store().list_schedules(&all, None, 1_000).ok()?;
        let mut schedule = json!(ScheduleView::from(&**self.dice.pick(&page.items)?));
        let fields = schedule.as_object_mut()?;
        fields.retain(|field, _| !["Arn", "CreationDate", "LastModificationDate"].contains(&field.as_str()));
        Some(schedule)
    }
}
