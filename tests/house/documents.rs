//! What documents say about files.

use std::path::{Path, PathBuf};

use crate::sources::root;

/// A file that moves takes the links to it along.
#[test]
fn links_of_documents_lead_to_files() {
    let mut links = 0;
    for folder in ["", "docs", "docs/adr", "examples", "local/scheduler", "terraform"] {
        for path in documents_in(&root().join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            for target in linked_files(&text) {
                links += 1;
                assert!(path.with_file_name(target).exists(), "{}: {target} does not exist", path.display());
            }
        }
    }
    assert!(links > 50, "the documents were not found");
}

fn documents_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The files that a document's prose links to, by their paths from the document.
fn linked_files(text: &str) -> Vec<&str> {
    // Each second part is a block of code.
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    let targets = links.map(|(link, _)| link.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}
