//! Step 5 of 7: the queues that the publisher mirrors, and the app to which it redrives.

use std::time::Duration;

use anyhow::Context;
use dead_letters::{FireClient, FireKey, Queue};
use schedule::{Delivered, Fire};
use scheduler_key::{KeySource, SchedulerKey, refuses_key};
use tokio::sync::OnceCell;

use crate::config::DeadLetterSettings;

/// For how many seconds other consumers do not see a message that a pass has received; longer than a pass takes.
const HOLD_SECS: i32 = 60;
/// The time limit of one post. The app answers in milliseconds; the runner waits as long.
const POST_TIMEOUT: Duration = Duration::from_secs(8);

/// The ports of the dead letters; the clients are created when the first pass needs them.
pub(crate) struct Sources {
    settings: DeadLetterSettings,
    queues: OnceCell<Vec<LetterQueue>>,
    /// `None` = the settings name none.
    key: Option<SchedulerKey>,
}

/// The app to which fires are redriven.
pub(crate) struct Target<'a> {
    client: FireClient,
    key: &'a SchedulerKey,
}

/// A mirrored queue.
pub(crate) struct LetterQueue {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) port: Queue,
}

impl Sources {
    pub(crate) fn new(settings: DeadLetterSettings) -> Self {
        let source = match (&settings.scheduler_api_key, &settings.scheduler_api_key_secret_arn) {
            (Some(key), _) => Some(KeySource::Value(key.clone())),
            (None, Some(arn)) => Some(KeySource::Secret(arn.clone())),
            (None, None) => None,
        };
        Sources { settings, queues: OnceCell::new(), key: source.map(SchedulerKey::new) }
    }

    /// The queues that are mirrored; none, if the settings name none.
    pub(crate) async fn queues(&self) -> &[LetterQueue] {
        let connect = async || {
            let mut queues = Vec::new();
            for (name, url) in self.settings.queue_urls() {
                let port = Queue::connect(url, HOLD_SECS, self.settings.has_sqs_endpoint).await;
                queues.push(LetterQueue { name, port });
            }
            queues
        };
        self.queues.get_or_init(connect).await
    }

    /// Creates a client of the app; it sends nothing yet.
    ///
    /// # Errors
    /// Returns one sentence if the settings name no app or no key.
    pub(crate) fn connect_to_app(&self) -> anyhow::Result<Target<'_>> {
        let base = self.settings.app_base_url.as_ref().context("the publisher has no CRONBOX_APP_BASE_URL")?;
        let key = self.key.as_ref().context("the publisher has no CRONBOX_SCHEDULER_API_KEY_SECRET_ARN")?;
        Ok(Target { client: FireClient::new(base.as_str(), POST_TIMEOUT)?, key })
    }
}

impl Target<'_> {
    /// Posts a fire with each key that may be right, as the runner does, until the app refuses none.
    ///
    /// # Errors
    /// Returns one sentence if the app has not answered, or if the secret cannot be read.
    pub(crate) async fn post_fire(&self, fire: &Fire) -> anyhow::Result<Delivered> {
        let mut keys = self.key.begin_request();
        let mut refused = None;
        while let Some(key) = keys.next_key().await? {
            let answer = self.client.send_fire(fire, &FireKey::parse_key(&key)?).await?;
            if !refuses_key(answer.status, &answer.body) {
                keys.keep_last().await;
                return answer.into_delivered();
            }
            refused = Some(answer);
        }
        refused.context("there is no key")?.into_delivered()
    }
}
