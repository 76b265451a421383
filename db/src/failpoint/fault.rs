//! A fault that a test arms: at which named point a process ends, stops or panics. Releases do not contain it.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One per process, because a fault may end the process, whichever instance reaches it.
static ARMED: OnceLock<Fault> = OnceLock::new();
static PASSES: AtomicU32 = AtomicU32::new(0);

/// What happens at which point, and at which pass through it: `I5:1:kill`.
#[derive(Clone, Debug)]
pub struct Fault {
    point: String,
    nth: u32,
    effect: Effect,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// SIGKILL: the process cleans nothing up.
    Kill,
    /// The process stops.
    Stop,
    /// The task panics; the process continues.
    Panic,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [point, nth, effect] = parts[..] else {
            return Err("write point:nth:effect, for example I5:1:kill".to_owned());
        };
        Ok(Fault {
            point: point.to_owned(),
            nth: nth.parse().map_err(|_| format!("{nth} is not a number"))?,
            effect: match effect {
                "kill" => Effect::Kill,
                "stop" => Effect::Stop,
                "panic" => Effect::Panic,
                other => return Err(format!("the effect must be kill, stop or panic, not {other}")),
            },
        })
    }
}

impl Fault {
    /// Returns what happens at this pass through a point, if anything; `passes` counts those through the armed point.
    pub fn effect_at(&self, point: impl Debug, passes: &AtomicU32) -> Option<Effect> {
        let is_armed = self.point == format!("{point:?}");
        let is_due = is_armed && passes.fetch_add(1, Ordering::Relaxed) + 1 == self.nth;
        is_due.then_some(self.effect)
    }
}

/// Arms the fault of this process; later calls change nothing.
pub fn arm_fault(fault: Fault) {
    ARMED.get_or_init(|| fault);
}

/// Passes a point, or fails there if the armed fault says so.
pub fn pass_point(point: impl Debug) {
    let Some(fault) = ARMED.get() else { return };
    let Some(effect) = fault.effect_at(&point, &PASSES) else { return };
    eprintln!("{effect:?} at {point:?}");
    match effect {
        Effect::Kill => kill_process(),
        Effect::Stop => stop_process(),
        Effect::Panic => std::panic::panic_any("a fault panics"),
    }
}

/// Ends this process by SIGKILL.
pub fn kill_process() -> ! {
    send("-KILL");
    // Do nothing between the signal and the end of the process.
    loop {
        std::thread::park();
    }
}

/// Stops this process by SIGSTOP until SIGCONT.
pub fn stop_process() {
    send("-STOP");
}

/// Uses the command `kill`, because std cannot send a signal.
fn send(signal: &str) {
    // SIGSTOP may take effect later on another thread, so the child waits until this process is stopped.
    const SEND: &str = r#"kill "$1" "$0"; [ "$1" = -STOP ] || exit 0
        until grep -qs '^State:.T' "/proc/$0/status" || ps -o stat= -p "$0" 2>/dev/null | grep -q T; do :; done"#;
    let pid = std::process::id().to_string();
    if let Err(error) = std::process::Command::new("sh").args(["-c", SEND, &pid, signal]).status() {
        eprintln!("cannot send myself {signal}: {error}");
    }
}
