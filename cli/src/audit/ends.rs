//! The file with the ends of the chains of the audit log. A program that computes a chain anew cannot compute it to an end
//! that was stored elsewhere.

use std::path::Path;

use anyhow::Context as _;
use api_types::audit::{AuditVerifyView, ChainEndView};

use crate::client::Client;

/// How many blocks one request names.
const AT_ONCE: usize = 500;

/// Reads the ends of the verification before; none if there is no file yet.
///
/// # Errors
/// Fails if the file cannot be read, or is not one that [`write_ends`] wrote.
pub(super) fn read_ends(file: &Path) -> anyhow::Result<Vec<ChainEndView>> {
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
pub(super) fn write_ends(file: &Path, ends: &[ChainEndView]) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let text = serde_json::to_string(ends)? + "\n";
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file));
    written.with_context(|| format!("{} cannot be written", file.display()))
}

/// Returns the stored ends whose blocks are missing now or have another hash.
///
/// # Errors
/// Fails if the app refuses the request or cannot be reached.
pub(super) async fn list_replaced(client: &Client, stored: &[ChainEndView]) -> anyhow::Result<Vec<ChainEndView>> {
    let mut replaced = Vec::new();
    for ends in stored.chunks(AT_ONCE) {
        let names: Vec<String> =
            ends.iter().map(|end| format!("{}:{}", end.team_id.unwrap_or_default(), end.sequence)).collect();
        let now: AuditVerifyView = client.read("/audit:verify", &[("blocks", names.join(","))]).await?;
        replaced.extend(ends.iter().filter(|end| !now.blocks.contains(end)).cloned());
    }
    Ok(replaced)
}
