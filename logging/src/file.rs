//! A log file of bounded size, for the stack on a developer's machine: no collector reads its standard error.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a file at most, unless one line is longer.
const LARGEST: u64 = 10 * 1024 * 1024;

/// A file of lines, which only its user may read. A file that is full becomes the previous one, and replaces the one before.
#[derive(Clone)]
pub struct LogFile(Arc<Mutex<State>>);

struct State {
    path: PathBuf,
    file: File,
    bytes: u64,
    largest: u64,
}

impl LogFile {
    /// Opens the file, and continues it if it exists.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_bounded(path, LARGEST)
    }

    fn open_bounded(path: &Path, largest: u64) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self(Arc::new(Mutex::new(State { path: path.to_owned(), file, bytes, largest }))))
    }
}

/// Where the file goes that is full.
fn previous(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".1");
    name.into()
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl State {
    fn begin_anew(&mut self) -> io::Result<()> {
        fs::rename(&self.path, previous(&self.path))?;
        (self.file, self.bytes) = (open(&self.path)?, 0);
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = bytes.len() as u64;
        if state.bytes > 0 && state.bytes + length > state.largest {
            state.begin_anew()?;
        }
        state.file.write_all(bytes)?;
        state.bytes += length;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_full_file_becomes_the_previous_one() {
        let folder = std::env::temp_dir().join(format!("cronbox-log-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("log");
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        for (line, now) in [("one\n", "one\n"), ("two\n", "one\ntwo\n"), ("three\n", "three\n"), ("four\n", "four\n")] {
            // Opened again, as by a stack that starts again.
            let mut file = LogFile::open_bounded(&path, 8).unwrap();
            file.write_all(line.as_bytes()).unwrap();
            assert_eq!(read(&path), now);
        }
        assert_eq!(read(&previous(&path)), "three\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
