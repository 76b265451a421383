//! Zone data from a folder of `TZif` files, like those of operating systems and Python's `tzdata`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use schedule::{ZoneSet, ZoneVersion};

/// Folders and files beside the zones that repeat them or are not zones.
const LEFT_OUT: [&str; 5] = ["posix", "right", "posixrules", "localtime", "Factory"];

/// Reads all zones below `folder`.
///
/// # Errors
/// Fails if a file cannot be read, or if no file names the version of the IANA database.
pub(crate) fn read_zones(folder: &Path) -> anyhow::Result<ZoneSet> {
    let mut files = Vec::new();
    collect_zones(folder, "", &mut files)?;
    Ok(ZoneSet::from_files(&read_version(folder)?, files)?)
}

fn read_version(folder: &Path) -> anyhow::Result<ZoneVersion> {
    for name in ["tzdata.zi", "+VERSION"] {
        let Ok(text) = fs::read_to_string(folder.join(name)) else { continue };
        let first = text.lines().next().unwrap_or_default();
        return Ok(first.trim_start_matches("# version ").trim().parse()?);
    }
    anyhow::bail!("the folder has neither tzdata.zi nor +VERSION, so its version is unknown")
}

fn collect_zones(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if LEFT_OUT.contains(&name) {
            continue;
        }
        if path.is_dir() {
            collect_zones(&path, &format!("{prefix}{name}/"), files)?;
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if bytes.starts_with(b"TZif") {
            files.push((format!("{prefix}{name}"), bytes));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_zone_files_are_read() {
        let folder = std::env::temp_dir().join(format!("zones-{}", std::process::id()));
        fs::create_dir_all(folder.join("Europe")).expect("a folder");
        let paris = ZoneSet::bundled().tzif("Europe/Paris").expect("a zone").to_vec();
        fs::write(folder.join("Europe/Paris"), &paris).expect("a file");
        fs::write(folder.join("localtime"), &paris).expect("a file");
        let unnamed = read_zones(&folder).expect_err("no version").to_string();
        assert_eq!(unnamed, "the folder has neither tzdata.zi nor +VERSION, so its version is unknown");
        fs::write(folder.join("tzdata.zi"), "# version 2030a\n# comment\n").expect("a file");
        let set = read_zones(&folder).expect("zone data");
        assert_eq!(set.version().to_string(), "2030a");
        assert_eq!(set.names().collect::<Vec<_>>(), ["Europe/Paris"]);
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
