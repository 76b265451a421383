//! Step 4 of 7: the `TZif` files of the timezones.
//!
//! The stand-in contains the archive that `make tzdata` writes, so that it needs no zone data on the machine. A program
//! that contains the stand-in and has newer files gives it those.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The crate `schedule` contains the same bytes, and reads them with its own code.
const ARCHIVE: &[u8] = include_bytes!("../../../../schedule/data/zones.bin");

static BUNDLED: LazyLock<BTreeMap<&str, &[u8]>> = LazyLock::new(|| read_archive(ARCHIVE).unwrap_or_default());

/// Reads the file of a timezone; clones read the same files.
#[derive(Clone)]
pub struct ZoneFiles(Arc<ReadFile>);

/// Returns the file of a timezone.
type ReadFile = dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync;

impl ZoneFiles {
    /// The files in this binary.
    pub fn bundled() -> ZoneFiles {
        ZoneFiles::from_reader(|name| BUNDLED.get(name).map(|file| file.to_vec()))
    }

    /// Files that `read` returns by the names of their timezones; it is called at each use.
    pub fn from_reader(read: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> ZoneFiles {
        ZoneFiles(Arc::new(read))
    }

    /// Returns the file of a timezone or of an alias.
    pub fn read_tzif(&self, name: &str) -> Option<Vec<u8>> {
        (self.0)(name)
    }
}

impl Default for ZoneFiles {
    fn default() -> Self {
        ZoneFiles::bundled()
    }
}

impl fmt::Debug for ZoneFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZoneFiles")
    }
}

/// Reads an archive: one line for each name, an empty line, then the files in the order of their lines.
fn read_archive(archive: &[u8]) -> Option<BTreeMap<&str, &[u8]>> {
    let end = archive.windows(2).position(|pair| pair == b"\n\n")?;
    let header = str::from_utf8(&archive[..end]).ok()?;
    let mut rest = &archive[end + 2..];
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    for line in header.lines() {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["zone", name, length] => {
                let (file, next) = rest.split_at_checked(length.parse().ok()?)?;
                files.insert(*name, file);
                rest = next;
            }
            ["link", name, target] => links.push((*name, *target)),
            // The format, and the version of the IANA database.
            _ => {}
        }
    }
    for (name, target) in links {
        let file = *files.get(target)?;
        files.insert(name, file);
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_read_by_name() {
        let files = read_archive(b"cronbox zones 1\nversion 2026f\nzone A 2\nlink B A\nzone C 3\n\naaccc").unwrap();
        assert_eq!(files, BTreeMap::from([("A", &b"aa"[..]), ("B", &b"aa"[..]), ("C", &b"ccc"[..])]));
        assert_eq!(read_archive(b"cronbox zones 1\nversion 2026f\nzone A 2\n\na"), None, "too short");
        assert_eq!(read_archive(b"cronbox zones 1\nversion 2026f\nlink B A\n\n"), None, "an alias of nothing");
    }

    #[test]
    fn bundled_archive_has_every_zone() {
        assert!(BUNDLED.len() > 590, "{} names", BUNDLED.len());
        assert!(BUNDLED.values().all(|file| file.starts_with(b"TZif")));
    }
}
