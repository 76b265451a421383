//! [`Cron`] in English.

use crate::Cron;

pub(crate) fn sentence(cron: &Cron) -> String {
    cron.to_string()
}
