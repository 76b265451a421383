//! Zone data: a set of `TZif` files with its version, as one archive of bytes.
//!
//! A process uses the sets of its [`ZoneHistory`](crate::ZoneHistory). The app and the publisher install the sets that
//! their database names, so that all instances use the same rules.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Write as _},
    ops::Range,
    str::FromStr,
    sync::{Arc, LazyLock, OnceLock},
};

use crate::{Timezone, ZoneDataError};

/// `make tzdata` writes it.
const BUNDLE: &[u8] = include_bytes!("../data/zones.bin");
const MAGIC: &str = "cronbox zones 1";

static BUNDLED: LazyLock<Arc<ZoneSet>> =
    LazyLock::new(|| Arc::new(ZoneSet::read(Cow::Borrowed(BUNDLE)).unwrap_or_else(|_| ZoneSet::empty())));

/// A release of the IANA database, for example `2026f`; a later release is greater.
///
/// ```
/// use schedule::ZoneVersion;
/// let version: ZoneVersion = "2026f".parse()?;
/// assert!(version > "2026a".parse()? && version > "2025zz".parse()?);
/// assert!("latest".parse::<ZoneVersion>().is_err());
/// # Ok::<(), schedule::ZoneDataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneVersion {
    year: u16,
    /// `z` comes before `za`.
    letters: (usize, String),
}

impl ZoneVersion {
    /// The year of the release.
    ///
    /// ```
    /// # use schedule::ZoneVersion;
    /// assert_eq!("2026f".parse::<ZoneVersion>().map(|version| version.year()), Ok(2026));
    /// ```
    #[must_use]
    pub fn year(&self) -> u16 {
        self.year
    }
}

impl FromStr for ZoneVersion {
    type Err = ZoneDataError;

    fn from_str(text: &str) -> Result<Self, ZoneDataError> {
        let invalid = || ZoneDataError(format!("{text:?} is not a version of the IANA database: write it as 2026f"));
        let (year, letters) = text.split_at_checked(4).ok_or_else(invalid)?;
        if letters.is_empty() || letters.len() > 4 || !letters.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(invalid());
        }
        let year = year.parse().ok().filter(|year| (1990..=2199).contains(year)).ok_or_else(invalid)?;
        Ok(Self { year, letters: (letters.len(), letters.to_owned()) })
    }
}

impl fmt::Display for ZoneVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.year, self.letters.1)
    }
}

/// The zones of one version of the IANA database.
///
/// ```
/// use schedule::ZoneSet;
/// let bundled = ZoneSet::bundled();
/// assert!(bundled.names().count() > 590);
/// let copy = ZoneSet::from_archive(bundled.archive().to_vec())?;
/// assert_eq!((copy.version(), copy.find("Europe/Paris")), (bundled.version(), bundled.find("Europe/Paris")));
/// # Ok::<(), schedule::ZoneDataError>(())
/// ```
#[derive(Debug)]
pub struct ZoneSet {
    version: ZoneVersion,
    archive: Cow<'static, [u8]>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The zone of this name: itself, or the zone of which it is an alias.
    target: String,
    /// The range in the archive.
    bytes: Range<usize>,
    /// Parsed at the first use.
    zone: OnceLock<Timezone>,
}

impl ZoneSet {
    /// The set in this binary.
    ///
    /// ```
    /// assert!(schedule::ZoneSet::bundled().version() >= &"2026f".parse().unwrap());
    /// ```
    pub fn bundled() -> Arc<Self> {
        Arc::clone(&BUNDLED)
    }

    /// Parses an archive, such as `make tzdata` writes.
    ///
    /// ```
    /// let error = schedule::ZoneSet::from_archive(b"TZif2".to_vec()).unwrap_err();
    /// assert_eq!(error.to_string(), "the zone data must begin with \"cronbox zones 1\"");
    /// ```
    ///
    /// # Errors
    /// Fails if the archive is truncated, or if a zone in it cannot be read.
    pub fn from_archive(archive: Vec<u8>) -> Result<Self, ZoneDataError> {
        let set = Self::read(Cow::Owned(archive))?;
        for (name, entry) in &set.entries {
            Timezone::check_tzif(name, &set.archive[entry.bytes.clone()])?;
        }
        Ok(set)
    }

    /// Creates a set from `TZif` files by name; files with the same bytes as an earlier one become its aliases.
    ///
    /// ```
    /// use schedule::ZoneSet;
    /// let paris = ZoneSet::bundled().tzif("Europe/Paris").unwrap().to_vec();
    /// let files = [("Europe/Paris".to_owned(), paris.clone()), ("Europe/Monaco".to_owned(), paris)];
    /// let set = ZoneSet::from_files(&"2026f".parse()?, files)?;
    /// assert_eq!(set.names().collect::<Vec<_>>(), ["Europe/Monaco", "Europe/Paris"]);
    /// # Ok::<(), schedule::ZoneDataError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn from_files(
        version: &ZoneVersion,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, ZoneDataError> {
        let files: BTreeMap<String, Vec<u8>> = files.into_iter().collect();
        let mut names_by_bytes: BTreeMap<&[u8], &str> = BTreeMap::new();
        let mut header = format!("{MAGIC}\nversion {version}\n");
        let mut bytes = Vec::new();
        for (name, tzif) in &files {
            let line = match names_by_bytes.get(tzif.as_slice()) {
                Some(target) => writeln!(header, "link {name} {target}"),
                None => {
                    names_by_bytes.insert(tzif, name);
                    bytes.extend_from_slice(tzif);
                    writeln!(header, "zone {name} {}", tzif.len())
                }
            };
            line.map_err(|error| ZoneDataError(error.to_string()))?;
        }
        let mut archive = header.into_bytes();
        archive.push(b'\n');
        archive.extend(bytes);
        Self::from_archive(archive)
    }

    fn empty() -> Self {
        let version = ZoneVersion { year: 1990, letters: (1, "a".to_owned()) };
        Self { version, archive: Cow::Borrowed(&[]), entries: BTreeMap::new() }
    }

    fn read(archive: Cow<'static, [u8]>) -> Result<Self, ZoneDataError> {
        let error = |reason: &str| ZoneDataError(reason.to_owned());
        let end = archive.windows(2).position(|pair| pair == b"\n\n").unwrap_or(0);
        let header = str::from_utf8(&archive[..end]).unwrap_or_default();
        let mut lines = header.lines();
        if lines.next() != Some(MAGIC) {
            return Err(ZoneDataError(format!("the zone data must begin with {MAGIC:?}")));
        }
        let version = lines.next().and_then(|line| line.strip_prefix("version "));
        let version = version.ok_or_else(|| error("the zone data have no version"))?.parse()?;
        let mut entries = BTreeMap::new();
        let mut links = Vec::new();
        let mut start = end + 2;
        for line in lines {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["zone", name, length] => {
                    let length: usize =
                        length.parse().map_err(|_| ZoneDataError(format!("the length is not a number: {line}")))?;
                    let bytes = start..start.saturating_add(length);
                    start = bytes.end;
                    let entry = Entry { target: (*name).to_owned(), bytes, zone: OnceLock::new() };
                    entries.insert((*name).to_owned(), entry);
                }
                ["link", name, target] => links.push((*name, *target)),
                _ => return Err(ZoneDataError(format!("the line is neither a zone nor a link: {line}"))),
            }
        }
        if start != archive.len() {
            return Err(ZoneDataError(format!("the zone data have {} bytes, not {start}", archive.len())));
        }
        for (name, target) in links {
            let zone: Option<&Entry> = entries.get(target);
            let bytes =
                zone.ok_or_else(|| ZoneDataError(format!("the zone data lack the zone {target}")))?.bytes.clone();
            entries.insert(name.to_owned(), Entry { target: target.to_owned(), bytes, zone: OnceLock::new() });
        }
        Ok(Self { version, archive, entries })
    }

    /// The version of the IANA database.
    ///
    /// ```
    /// assert!(schedule::ZoneSet::bundled().version().to_string().starts_with("20"));
    /// ```
    pub fn version(&self) -> &ZoneVersion {
        &self.version
    }

    /// The bytes that [`Self::from_archive`] parses.
    ///
    /// ```
    /// assert!(schedule::ZoneSet::bundled().archive().starts_with(b"cronbox zones 1\n"));
    /// ```
    pub fn archive(&self) -> &[u8] {
        &self.archive
    }

    /// All names, aliases included, in order.
    ///
    /// ```
    /// assert_eq!(schedule::ZoneSet::bundled().names().next(), Some("Africa/Abidjan"));
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The zone of a name or alias.
    ///
    /// ```
    /// let set = schedule::ZoneSet::bundled();
    /// assert_eq!(set.find("Asia/Calcutta").unwrap().name(), "Asia/Calcutta");
    /// assert_eq!(set.find("Mars/Phobos"), None);
    /// ```
    pub fn find(&self, name: &str) -> Option<Timezone> {
        if name == Timezone::UTC.name() {
            return Some(Timezone::UTC);
        }
        let entry = self.entries.get(name)?;
        if let Some(zone) = entry.zone.get() {
            return Some(*zone);
        }
        let zone = Timezone::intern_zone(name, &entry.target, &self.archive[entry.bytes.clone()]).ok()?;
        Some(*entry.zone.get_or_init(|| zone))
    }

    /// The `TZif` file of a name or alias.
    ///
    /// ```
    /// assert!(schedule::ZoneSet::bundled().tzif("Europe/Paris").unwrap().starts_with(b"TZif"));
    /// ```
    pub fn tzif(&self, name: &str) -> Option<&[u8]> {
        self.entries.get(name).map(|entry| &self.archive[entry.bytes.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(archive: &str) -> String {
        ZoneSet::from_archive(archive.as_bytes().to_vec()).expect_err("no zone data").to_string()
    }

    #[test]
    fn damaged_archives_are_refused() {
        assert_eq!(refused(""), r#"the zone data must begin with "cronbox zones 1""#);
        assert_eq!(
            refused("cronbox zones 1\nversion x\n\n"),
            r#""x" is not a version of the IANA database: write it as 2026f"#
        );
        assert_eq!(refused("cronbox zones 1\nversion 2026a\nzone A/B 5\n\nTZ"), "the zone data have 44 bytes, not 47");
        assert_eq!(refused("cronbox zones 1\nversion 2026a\nlink A/B C/D\n\n"), "the zone data lack the zone C/D");
        assert_eq!(
            refused("cronbox zones 1\nversion 2026a\nzone A/B 2\n\nTZ"),
            "zone A/B: not TZif data of version 2 or later"
        );
        assert_eq!(refused("cronbox zones 1\nversion 2026a\nnone\n\n"), "the line is neither a zone nor a link: none");
    }

    /// Such a file ends in 2037, because it has no footer.
    #[test]
    fn files_of_version_1_are_refused() {
        let bundled = ZoneSet::bundled();
        let mut tzif = bundled.tzif("Europe/Paris").expect("a zone").to_vec();
        let set = |tzif: &[u8]| ZoneSet::from_files(bundled.version(), [("A/B".to_owned(), tzif.to_vec())]);
        assert_eq!(tzif[4], b'2');
        assert!(set(&tzif).is_ok());
        tzif[4] = 0;
        assert_eq!(set(&tzif).expect_err("version 1").to_string(), "zone A/B: not TZif data of version 2 or later");
    }

    #[test]
    fn versions_have_a_year_and_letters() {
        for text in ["1990a", "2026f", "2026zz", "2199abcd"] {
            assert_eq!(text.parse::<ZoneVersion>().map(|version| version.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "2026", "2026abcde", "2026A", "2026-", "1989a", "2200a", "abcda", "202é"] {
            let error = text.parse::<ZoneVersion>().expect_err(text);
            assert_eq!(error.to_string(), format!("{text:?} is not a version of the IANA database: write it as 2026f"));
        }
    }

    #[test]
    fn the_bundle_reads_completely() {
        let set = ZoneSet::from_archive(BUNDLE.to_vec()).expect("zone data");
        assert_eq!(set.version(), ZoneSet::bundled().version());
        assert!(set.names().all(|name| set.find(name).is_some_and(|zone| zone.name() == name)));
    }

    #[test]
    fn aliases_name_their_zone() {
        let set = ZoneSet::bundled();
        let zone = |name| set.find(name).expect("a zone");
        assert_eq!(zone("Canada/Pacific").zone_name(), "America/Vancouver");
        assert_eq!(zone("Etc/UTC").zone_name(), zone("Zulu").zone_name());
        assert_ne!(zone("Canada/Pacific"), zone("America/Vancouver"));
    }
}
