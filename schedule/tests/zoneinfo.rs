//! Compares every change of every zone from 1970 to 2199 with Python's zoneinfo on the same data.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use chrono::{DateTime, Utc};
use schedule::{Timezone, ZoneSet};

/// For each line `name second offset second offset ..`: the offset before and at each second, and every twenty days between.
const CHECK: &str = r#"
import datetime, sys, zoneinfo

def seconds(zone, second):
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return int((epoch + datetime.timedelta(seconds=second)).astimezone(zone).utcoffset().total_seconds())

zoneinfo.reset_tzpath([sys.argv[1]])
checked = 0
for line in open(sys.argv[2]):
    name, *numbers = line.split()
    zone = zoneinfo.ZoneInfo(name)
    changes = list(zip(map(int, numbers[::2]), map(int, numbers[1::2])))
    for (start, offset), (end, _) in zip(changes, changes[1:] + [(7258118400, 0)]):
        for second in [*range(start, end, 20 * 86400), end - 1]:
            assert seconds(zone, second) == offset, (name, second, seconds(zone, second), offset)
    checked += len(changes)
print(checked)
"#;

#[test]
fn all_changes_agree_with_zoneinfo() {
    let folder = std::env::temp_dir().join(format!("zoneinfo-{}", std::process::id()));
    let zones = ZoneSet::bundled();
    let mut lines = String::new();
    let mut changes = 0;
    for name in zones.names() {
        let path = folder.join("zones").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, zones.tzif(name).expect("a zone")).expect("a file");
        let found = changes_of(zones.find(name).expect("a zone"));
        changes += found.len();
        write!(lines, "{name}").expect("a string");
        found.iter().for_each(|(at, offset)| write!(lines, " {} {offset}", at.timestamp()).expect("a string"));
        lines.push('\n');
    }
    fs::write(folder.join("changes"), lines).expect("a file");
    let mut command = Command::new(python());
    let checked = command.args(["-c", CHECK]).arg(folder.join("zones")).arg(folder.join("changes")).output();
    let checked = checked.expect("python runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert_eq!(String::from_utf8_lossy(&checked.stdout).trim(), changes.to_string());
    assert!(changes > 50_000, "only {changes} changes");
    fs::remove_dir_all(folder).expect("the folder");
}

/// The offset of 1970, and each change of it up to 2199.
fn changes_of(tz: Timezone) -> Vec<(DateTime<Utc>, i32)> {
    let until: DateTime<Utc> = "2200-01-01T00:00:00Z".parse().expect("a time");
    let start = DateTime::UNIX_EPOCH;
    let changes = tz.offset_changes_after(start).take_while(|at| *at < until);
    std::iter::once(start).chain(changes).map(|at| (at, tz.offset_secs(at))).collect()
}

/// The Python of the tests' venv, if there is one.
fn python() -> PathBuf {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python");
    if venv.exists() { venv } else { PathBuf::from("python3") }
}
