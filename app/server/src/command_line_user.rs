//! Step 1 of 7: the user of the operating system who calls the command line, for the audit log.

use std::os::unix::fs::MetadataExt as _;

/// `loginuid` of a process that belongs to no login, for example of a service.
const NO_LOGIN: u32 = u32::MAX;

/// Returns the actor of this process: `cli:alice`, `cli:uid-1000` if the user has no name, or `cli` if the system does
/// not say who it is.
pub(crate) fn name_actor() -> String {
    let Some(uid) = login_uid().or_else(process_uid) else { return "cli".to_owned() };
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    match name_of(uid, &users) {
        Some(name) => format!("cli:{name}"),
        None => format!("cli:uid-{uid}"),
    }
}

/// The user who logged in, also behind `sudo`.
fn login_uid() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/self/loginuid").ok()?;
    text.trim().parse().ok().filter(|uid| *uid != NO_LOGIN)
}

fn process_uid() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|process| process.uid())
}

/// Finds a user in the format of `/etc/passwd`.
fn name_of(uid: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\n:x:5:5::/:\nbroken\nalice:x:1000:100:Alice:/home/alice:/bin/sh\n";
        assert_eq!(name_of(0, users), Some("root"));
        assert_eq!(name_of(1000, users), Some("alice"));
        assert_eq!((name_of(5, users), name_of(100, users)), (None, None));
    }
}
