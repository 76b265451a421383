//! The files of the project.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust sources under a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The migrations, each with its file name.
pub(crate) fn migrations() -> Vec<(String, String)> {
    let files = std::fs::read_dir(root().join("migrations")).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}
