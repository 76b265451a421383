//! The tour of cronbox's README with the generated client. It reads CRONBOX_URL, CRONBOX_KEY and CRONBOX_TEAM_ID.

use std::env;
use std::error::Error;
use std::time::Duration;

use cronbox_client::types::{
    ActionBody, ListRunsStateItem, ListRunsTriggerItem, LogAction, LogType, ProblemCode, RunView,
};
use cronbox_client::{Client, problem_of};
use reqwest::header::{HeaderMap, HeaderValue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut headers = HeaderMap::new();
    headers.insert("X-API-Key", HeaderValue::from_str(&env::var("CRONBOX_KEY")?)?);
    let http = reqwest::Client::builder().no_proxy().default_headers(headers).build()?;
    let client = Client::new_with_client(&env::var("CRONBOX_URL")?, http);

    let action = ActionBody::LogAction(LogAction { type_: LogType::Log, message: "hello".to_owned() });
    let team: i64 = env::var("CRONBOX_TEAM_ID")?.parse()?;
    let name = format!("rust {}", std::process::id());
    let new = client
        .create_workflow()
        .wait(20_u64)
        .body_map(|body| body.team_id(team).name(name).cron_schedule("* * * * *".to_owned()).action(action));
    let workflow = new.send().await?.into_inner();
    assert_eq!(workflow.sync.status.to_string(), "synced");

    // The schedule comes first: while a run of it has not ended, cronbox refuses another one, unless the overlap policy permits it.
    assert!(succeeded(&client, workflow.id, "schedule").await?.scheduled_time.is_some());
    let fired = client.fire_schedule().id(workflow.id).send().await?.into_inner();
    assert_eq!(succeeded(&client, workflow.id, "manual").await?.id, fired.run_id);

    let wrong = client.patch_workflow().id(workflow.id).body_map(|body| body.cron_schedule("75 9 * * *".to_owned()));
    let problem = problem_of(wrong.send().await.expect_err("it is not valid")).await.expect("a problem");
    assert_eq!(problem.code, ProblemCode::InvalidField);
    assert_eq!(problem.field.as_deref(), Some("cron_schedule"));

    client.delete_schedule().id(workflow.id).send().await?;
    client.archive_workflow().id(workflow.id).send().await?;
    println!("rust: the tour is complete");
    Ok(())
}

/// The newest run with this trigger that has succeeded.
async fn succeeded(client: &Client, workflow: i64, trigger: &str) -> Result<RunView, Box<dyn Error>> {
    loop {
        let runs = client.list_runs().workflow_id(workflow).trigger(vec![trigger.parse::<ListRunsTriggerItem>()?]);
        let page = runs.state(vec![ListRunsStateItem::Succeeded]).limit(1).send().await?.into_inner();
        if let Some(run) = page.items.into_iter().next() {
            return Ok(run);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
