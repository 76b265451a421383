//! The logins of a local server: the owner, and one for each group of least privilege.

/// The role that owns the server; it migrates, and tests write rows as it.
pub(super) const ROLE: &str = "cronbox";

/// A login that may do only what one of our programs does; it has the server's password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Of the processes of the app
    App,
    /// Of the publishers
    Publisher,
    /// Of the notifiers, which only tests start
    Notifier,
}

impl Login {
    /// All of them.
    pub const ALL: [Login; 3] = [Login::App, Login::Publisher, Login::Notifier];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Login::App => "cronbox_app_login",
            Login::Publisher => "cronbox_publisher_login",
            Login::Notifier => "cronbox_notifier_login",
        }
    }

    /// The group whose privileges it has.
    pub fn group(self) -> &'static str {
        match self {
            Login::App => db::APP_GROUP,
            Login::Publisher => db::PUBLISHER_GROUP,
            Login::Notifier => db::NOTIFIER_GROUP,
        }
    }
}

/// Returns the DSN of the same database with another login; a DSN that is not the owner's stays as it is.
pub fn log_in_as(dsn: &str, login: Login) -> String {
    dsn.replacen(&format!("//{ROLE}:"), &format!("//{}:", login.name()), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_replace_only_the_owner() {
        let own = "postgres://cronbox:p@127.0.0.1:5432/cronbox";
        let app = log_in_as(own, Login::App);
        assert_eq!(app, "postgres://cronbox_app_login:p@127.0.0.1:5432/cronbox");
        assert_eq!(log_in_as(&app, Login::Publisher), app);
    }
}
