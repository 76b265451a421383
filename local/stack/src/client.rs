//! The real SDK, with the address of a stand-in.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::retry::RetryConfig;
use aws_sdk_scheduler::config::timeout::TimeoutConfig;
use aws_sdk_scheduler::config::{BehaviorVersion, Region};

/// The time limit of a call; long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a client for a stand-in at `endpoint`, with dummy credentials and without retries.
pub fn stand_in_client(endpoint: &str) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(PATIENCE)
        .read_timeout(PATIENCE)
        .operation_attempt_timeout(PATIENCE)
        .build();
    let config = aws_sdk_scheduler::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .endpoint_url(endpoint)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .build();
    Client::from_conf(config)
}
