//! Processor time and memory of processes, as Linux's `/proc` reports them; elsewhere all figures are 0.

use std::collections::BTreeMap;
use std::fs;

/// `/proc` counts in hundredths of a second on every Linux, whatever the kernel's own clock.
const TICKS_PER_SEC: f64 = 100.0;

/// The processor time of one process: a line of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessTimes {
    /// The parent's id.
    pub parent: u32,
    /// Seconds of the process itself.
    pub own_secs: f64,
    /// Seconds of its children that have ended and that it has waited for, and of theirs.
    pub ended_children_secs: f64,
}

impl ProcessTimes {
    /// Parses the line; `None` if it has another form.
    pub fn parse(line: &str) -> Option<Self> {
        // The second field is the program's name, which may contain blanks and brackets.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let secs = |at: usize| fields.get(at)?.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SEC);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own_secs: secs(11)? + secs(12)?,
            ended_children_secs: secs(13)? + secs(14)?,
        })
    }

    /// Reads the times of a process; `None` if it does not exist.
    pub fn read(process: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    fn total_secs(self) -> f64 {
        self.own_secs + self.ended_children_secs
    }
}

/// Processor time of a process and of all its descendants so far, also of those that have ended.
pub fn tree_cpu_secs(root: u32) -> f64 {
    sum_of_tree(root, &all_processes())
}

/// Processor time of the children of this process that have ended and that it has waited for.
///
/// The difference of two readings is exact for a process that starts and ends between them.
pub fn ended_children_cpu_secs() -> f64 {
    ProcessTimes::read(std::process::id()).map_or(0.0, |times| times.ended_children_secs)
}

/// The highest resident memory of a process so far (`VmHWM`), in megabytes.
pub fn high_water_mb(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

fn all_processes() -> BTreeMap<u32, ProcessTimes> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| Some((id, ProcessTimes::read(id)?))).collect()
}

fn sum_of_tree(root: u32, processes: &BTreeMap<u32, ProcessTimes>) -> f64 {
    let own = processes.get(&root).map_or(0.0, |times| times.total_secs());
    let children = processes.iter().filter(|(id, times)| times.parent == root && **id != root);
    own + children.map(|(id, _)| sum_of_tree(*id, processes)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7 (my (odd) name) S 3 7 7 0 -1 4194560 1 2 3 4 250 50 1000 100 20 0 1 0 99 1 1";

    #[test]
    fn odd_program_names_are_skipped() {
        let times = ProcessTimes { parent: 3, own_secs: 3.0, ended_children_secs: 11.0 };
        assert_eq!(ProcessTimes::parse(LINE), Some(times));
        assert_eq!(ProcessTimes::parse("7 (short) S 3"), None);
        assert_eq!(ProcessTimes::parse(""), None);
    }

    #[test]
    fn a_tree_counts_each_descendant_once() {
        let times = |parent, own_secs, ended_children_secs| ProcessTimes { parent, own_secs, ended_children_secs };
        let processes = BTreeMap::from([
            (1, times(0, 100.0, 100.0)),
            (5, times(1, 1.0, 2.0)),
            (6, times(5, 4.0, 0.0)),
            (7, times(6, 8.0, 16.0)),
            (8, times(1, 32.0, 0.0)),
        ]);
        assert!((sum_of_tree(5, &processes) - 31.0).abs() < 1e-9);
        assert!(sum_of_tree(9, &processes).abs() < 1e-9, "it does not exist");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn children_count_after_their_end() {
        let before = (ended_children_cpu_secs(), tree_cpu_secs(std::process::id()));
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let counted = std::process::Command::new("sh").args(["-c", count]).status().unwrap();
        assert!(counted.success());
        assert!(ended_children_cpu_secs() > before.0);
        assert!(tree_cpu_secs(std::process::id()) > before.1);
        assert!(high_water_mb(std::process::id()) > 1.0);
    }
}
