//! The file with the ends of the chains of the audit log. A program that computes a chain anew cannot compute it to an end
//! that was stored elsewhere.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::Client;

/// How many blocks one request names.
const AT_ONCE: usize = 500;

/// The last block of a chain at an earlier verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// `None`: entries without a team.
    pub(super) team_id: Option<i64>,
    pub(super) sequence: i64,
    hash: String,
}

/// Reads the ends of the verification before; none if there is no file yet.
///
/// # Errors
/// Fails if the file cannot be read, or is not one that [`write_ends`] wrote.
pub(super) fn read_ends(file: &Path) -> anyhow::Result<Vec<End>> {
    match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} has no ends of chains", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
    }
}

/// Writes the ends beside the file first, so that a full disk does not empty it.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn write_ends(file: &Path, ends: &Value) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let written = std::fs::write(&beside, format!("{ends}\n")).and_then(|()| std::fs::rename(&beside, file));
    written.with_context(|| format!("{} cannot be written", file.display()))
}

/// Returns the stored ends whose blocks are missing now or have another hash.
///
/// # Errors
/// Fails if the app refuses the request or cannot be reached.
pub(super) async fn list_replaced(client: &Client, stored: &[End]) -> anyhow::Result<Vec<End>> {
    let mut replaced = Vec::new();
    for ends in stored.chunks(AT_ONCE) {
        let names: Vec<String> =
            ends.iter().map(|end| format!("{}:{}", end.team_id.unwrap_or_default(), end.sequence)).collect();
        let answer = client.get("/audit:verify", &[("blocks", names.join(","))]).await?;
        let blocks: Vec<End> =
            serde_json::from_value(answer["blocks"].clone()).context("the app is too old for --ends")?;
        replaced.extend(ends.iter().filter(|end| !blocks.contains(end)).cloned());
    }
    Ok(replaced)
}
