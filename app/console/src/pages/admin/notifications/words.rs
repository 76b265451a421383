//! Events, channels and messages in words.

#![expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]

use api_types::notifications::{
    ChannelKind, ChannelView, MessageState, NotificationEvent, NotificationState, RuleView,
};
use chrono::TimeDelta;

use crate::times;
use crate::words::Badge;

/// What happens.
pub(super) fn event(event: &NotificationEvent) -> &'static str {
    match event {
        NotificationEvent::RunFailed => "a run failed",
        NotificationEvent::FailuresInARow => "several runs failed in a row",
        NotificationEvent::Recovered => "a run succeeded after failures in a row",
        NotificationEvent::Missed => "due times did not run",
        NotificationEvent::Abandoned => "a run was abandoned",
        NotificationEvent::SkippedOverlap => "due times were skipped in a row, because the run before had not ended",
        NotificationEvent::AutoPaused => "cronbox paused a workflow after failures",
        NotificationEvent::SyncFailed => "EventBridge refused a schedule",
        NotificationEvent::DriftRepaired => "a schedule was changed in EventBridge, and repaired",
        NotificationEvent::RunLate => "a run has not started in time",
        NotificationEvent::RunLong => "a run takes too long",
        NotificationEvent::NoSuccess => "a workflow had no success for too long",
        NotificationEvent::VerifyDifference => "the daily verification found a difference",
        NotificationEvent::FrozenLong => "a freeze lasts long",
        NotificationEvent::PausedLong => "a workflow is paused for long",
    }
}

/// From when on a rule applies: how often in a row, or for how long.
pub(super) fn condition(rule: &RuleView) -> Option<String> {
    let often = rule.threshold.map(|times| format!("{times} in a row"));
    often.or_else(|| rule.after_secs.map(|secs| format!("after {}", times::span(TimeDelta::seconds(secs.into())))))
}

/// How messages are sent.
pub(super) fn kind(kind: &ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Webhook => "webhook",
        ChannelKind::Slack => "Slack",
        ChannelKind::Email => "e-mail",
        ChannelKind::Aws => "AWS (event bus or SNS topic)",
    }
}

/// The kind of a channel, as the API writes it.
pub(super) fn kind_value(kind: &ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Webhook => "webhook",
        ChannelKind::Slack => "slack",
        ChannelKind::Email => "email",
        ChannelKind::Aws => "aws",
    }
}

/// Where the messages of a channel go.
pub(super) fn target(channel: &ChannelView) -> String {
    match &channel.origin {
        Some(origin) => origin.clone(),
        None if channel.kind == ChannelKind::Aws => {
            channel.target_arn.clone().unwrap_or_else(|| "nowhere: it has no ARN".to_owned())
        }
        None => channel.recipients.join(", "),
    }
}

/// Whether a channel or a rule is in force.
pub(super) fn enabled(is_enabled: &bool) -> Badge {
    match is_enabled {
        true => Badge { words: "in force", class: "good", mark: "●" },
        false => Badge { words: "disabled", class: "quiet", mark: "–" },
    }
}

/// Whether a notification is sent.
pub(super) fn notice_state(state: &NotificationState) -> Badge {
    let (words, class, mark) = match state {
        NotificationState::New => ("is sent soon", "busy", "○"),
        NotificationState::Routed => ("sent to its channels", "good", "✓"),
        NotificationState::Snoozed => ("not sent: the rule was snoozed", "quiet", "–"),
        NotificationState::Unsent => ("not sent: no enabled channel", "warn", "!"),
    };
    Badge { words, class, mark }
}

/// Whether a message was delivered.
pub(super) fn message_state(state: &MessageState) -> Badge {
    let (words, class, mark) = match state {
        MessageState::Pending => ("on its way", "busy", "○"),
        MessageState::Sent => ("accepted by the receiver", "good", "✓"),
        MessageState::Failed => ("not delivered", "bad", "✕"),
    };
    Badge { words, class, mark }
}
