//! Step 5 of 7: the queues that the publisher mirrors, and the app to which it redrives.

use std::time::Duration;

use anyhow::{Context, bail};
use dead_letters::{FireClient, Queue};
use lambda_database::fetch_key;
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
}

/// A mirrored queue.
pub(crate) struct LetterQueue {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) port: Queue,
}

impl Sources {
    pub(crate) fn new(settings: DeadLetterSettings) -> Self {
        Sources { settings, queues: OnceCell::new() }
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

    /// Creates a client of the app. The key is read anew for each pass that posts, so that a rotated key is the current one.
    ///
    /// # Errors
    /// Returns one sentence if the settings name no app or no key, or if the secret cannot be read.
    pub(crate) async fn connect_to_app(&self) -> anyhow::Result<FireClient> {
        let base = self.settings.app_base_url.as_ref().context("the publisher has no CRONBOX_APP_BASE_URL")?;
        let key = match (&self.settings.scheduler_api_key, &self.settings.scheduler_api_key_secret_arn) {
            (Some(key), _) => key.clone(),
            (None, Some(arn)) => fetch_key(arn).await?,
            (None, None) => bail!("the publisher has no CRONBOX_SCHEDULER_API_KEY_SECRET_ARN"),
        };
        FireClient::new(base.as_str(), &key, POST_TIMEOUT)
    }
}
