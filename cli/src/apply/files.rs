//! Reads the files of `apply`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use manifest::{Entry, Manifest, Team, find_repeated_previous_names, parse_manifest};

use crate::config::text_variable;
use crate::print::print_error;

/// The workflows of all files.
pub(super) struct Files {
    /// Each file without a workflow: what that file had once is surplus.
    pub(super) empty: Vec<EmptyFile>,
    pub(super) entries: Vec<FileEntry>,
}

/// A file without a workflow.
pub(super) struct EmptyFile {
    pub(super) file: String,
    /// The owner that it names.
    pub(super) owner: Option<String>,
    pub(super) team: Option<Team>,
}

/// A workflow, and where it is.
pub(super) struct FileEntry {
    pub(super) file: String,
    /// The owner that its file names.
    pub(super) owner: Option<String>,
    pub(super) entry: Entry,
}

impl FileEntry {
    /// `file:line` of the workflow.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.entry.lines.first())
    }

    /// `file:line` of one of its fields.
    pub(super) fn place_of(&self, field: &str) -> String {
        format!("{}:{}", self.file, self.entry.lines.of(field))
    }
}

impl Files {
    /// Whether a file names an owner.
    pub(super) fn name_an_owner(&self) -> bool {
        self.empty.iter().any(|file| file.owner.is_some()) || self.entries.iter().any(|one| one.owner.is_some())
    }
}

/// Reads all files, in the order of their names; prints all complaints, and returns `None` if there are any.
///
/// # Errors
/// Fails if a file cannot be read.
pub(super) fn read_files(named: &[PathBuf]) -> anyhow::Result<Option<Files>> {
    let (mut files, mut is_wrong) = (Files { empty: Vec::new(), entries: Vec::new() }, false);
    for path in list_files(named)? {
        let (name, text) = read_text(&path)?;
        match parse_manifest(&text, &text_variable) {
            Ok(Manifest { owner, team, entries }) if entries.is_empty() => {
                files.empty.push(EmptyFile { file: name, owner, team });
            }
            Ok(Manifest { owner, entries, .. }) => files.entries.extend(entries.into_iter().map(|entry| FileEntry {
                file: name.clone(),
                owner: owner.clone(),
                entry,
            })),
            Err(complaints) => {
                is_wrong = true;
                complaints.iter().for_each(|complaint| print_error(&format!("{name}:{complaint}")));
            }
        }
    }
    is_wrong |= has_repeated_names(&files.entries);
    is_wrong |= has_repeated_previous_names(&files.entries);
    Ok((!is_wrong).then_some(files))
}

fn has_repeated_names(entries: &[FileEntry]) -> bool {
    let mut is_wrong = false;
    for (at, one) in entries.iter().enumerate() {
        let same = |other: &&FileEntry| other.entry.team == one.entry.team && other.entry.name == one.entry.name;
        if let Some(other) = entries[..at].iter().find(same) {
            let (line, there) = (one.entry.lines.of("name"), other.entry.lines.of("name"));
            print_error(&format!("{}:{line}: name: {}:{there} has the same team and name", one.file, other.file));
            is_wrong = true;
        }
    }
    is_wrong
}

fn has_repeated_previous_names(entries: &[FileEntry]) -> bool {
    let names: Vec<_> = entries.iter().map(|one| one.entry.names(&one.entry.team)).collect();
    let repeated = find_repeated_previous_names(&names);
    for found in &repeated {
        let (one, other) = (&entries[found.at], &entries[found.other]);
        let words = found.in_words(&other.place_of(found.field));
        print_error(&format!("{}: previous_name: {words}", one.place_of("previous_name")));
    }
    !repeated.is_empty()
}

fn list_files(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let read = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut inside = read.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        inside.retain(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml"));
        inside.sort_unstable();
        if inside.is_empty() {
            bail!("{} has no file that ends with .yaml or .yml", path.display());
        }
        files.extend(inside);
    }
    Ok(files)
}

fn read_text(path: &Path) -> anyhow::Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(("standard input".to_owned(), text));
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), text))
}
