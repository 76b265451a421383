//! The order of the files in each crate: no circle, and no import upward.

use std::sync::LazyLock;

use crate::crates::workspace;
use crate::imports::{Imports, Sources, circle_in};
use crate::sources::root;

/// Rooms from top to bottom. Each has a name, and its files and folders below `src`; of two that fit a file, the longer
/// one counts. A file imports only from its own room and from the rooms below it.
type Rooms = &'static [(&'static str, &'static str)];

/// One crate.
struct House {
    name: &'static str,
    /// Its sources, from the root of the workspace.
    src: &'static str,
    rooms: Rooms,
}

static HOUSES: [House; 27] = [
    House {
        name: "old_names",
        src: "old_names/src",
        rooms: &[("programs", "bin"), ("crate", "lib"), ("new program", "program")],
    },
    House {
        name: "api_types",
        src: "app/api_types/src",
        rooms: &[
            ("crate", "lib"),
            ("exports", "team_export"),
            ("objects with results", "schedules workflows verify versions"),
            ("results", "results me"),
            (
                "objects",
                "audit backfills bulk dead_letters drift events freezes health instances jobs keys limits occurrences outbox",
            ),
            ("notifications", "notifications"),
            ("more objects", "page previews problem runs secrets sessions stats teams upcoming"),
            ("parts of objects", "actions raw reasons"),
            ("readers", "nesting"),
        ],
    },
    House {
        name: "manifest",
        src: "manifest/src",
        rooms: &[("crate", "lib"), ("parts", "complaint previous_name substitute")],
    },
    House { name: "db_login", src: "db_login/src", rooms: &[("crate", "lib")] },
    House {
        name: "traces",
        src: "traces/src",
        rooms: &[("crate", "lib"), ("spans", "span"), ("export", "export"), ("parts", "queue traceparent")],
    },
    House {
        name: "dead_letters",
        src: "dead_letters/src",
        rooms: &[("crate", "lib"), ("ports", "delivery queue"), ("messages", "message")],
    },
    House { name: "logging", src: "logging/src", rooms: &[("crate", "lib"), ("outputs", "file line")] },
    House {
        name: "app",
        src: "app/server/src",
        rooms: &[
            ("process", "lib main command_line_user keys_command team_limits_command"),
            ("run", "run server"),
            ("API", "api"),
            ("console", "console"),
            ("notifications", "api/notifications"),
            ("handlers", "api/operations api/runs api/workflows"),
            ("requests", "api/request"),
            ("jobs, instances and schedules file", "instances jobs schedules_file"),
            ("state", "pools state"),
            ("settings", "config"),
            (
                "parts of an instance",
                "cadence clock connection heartbeat identity_provider jobs/prune jobs/table lines metrics migrate operator_url \
                 refusals",
            ),
        ],
    },
    House {
        name: "executor",
        src: "app/executor/src",
        rooms: &[
            ("crate", "lib"),
            ("loop and jobs", "run test_controls recovery timeouts"),
            ("attempts", "attempt heartbeat started"),
            ("executor", "executor"),
            ("parts of an executor", "activity attempts_in_flight auto_pause call ends settings shutdown wake"),
            ("statements", "claim hand_over next_try"),
            ("context", "context"),
            ("documents", "document"),
            ("actions", "actions"),
        ],
    },
    House {
        name: "egress",
        src: "app/egress/src",
        rooms: &[
            ("crate", "lib"),
            ("client", "client"),
            ("connector", "connector"),
            ("mail", "mail"),
            ("policy", "allowed"),
            ("parts", "address connection departure hosts ports resolver special_purpose"),
        ],
    },
    House {
        name: "notifications",
        src: "app/notifications/src",
        rooms: &[
            ("crate", "lib"),
            ("delivery", "delivery"),
            ("passes and lists", "condition difference group message_list notification_list old_rows route"),
            ("rows", "message notification rule"),
            ("channels", "channel"),
            ("limits of teams", "team_limits"),
            ("failures", "failures"),
            ("words", "aws_target quiet text"),
        ],
    },
    House {
        name: "ledger",
        src: "app/ledger/src",
        rooms: &[
            ("crate", "lib"),
            ("fires", "invoke watchdog acceptance bulk"),
            ("past times", "catch_up backfills manual verify"),
            ("due times", "due_times followers admission stats upcoming"),
            (
                "rows",
                "versions occurrences runs ledger_cursor freezes spread prune_marks requested_fires job_failures identity",
            ),
        ],
    },
    House {
        name: "console",
        src: "app/console/src",
        rooms: &[
            ("crate", "lib"),
            ("pages", "pages"),
            ("shared by pages", "act answer form frame path period teams"),
            ("requests", "api failure query assets"),
            ("pictures", "drawing"),
            ("words", "words times"),
        ],
    },
    House {
        name: "access",
        src: "app/access/src",
        rooms: &[
            ("crate", "lib"),
            ("repeats", "repeats"),
            ("gate", "gate"),
            ("sessions", "sessions"),
            ("people", "people"),
            ("teams", "signing_secrets teams"),
            ("keys", "ensured_keys rotation keys key_uses restrictions key key_text rights"),
            ("limits", "hosts bad_keys failed_logins in_flight limits"),
            ("addresses", "network"),
        ],
    },
    House {
        name: "workflows",
        src: "app/workflows/src",
        rooms: &[
            ("crate", "lib"),
            ("edits", "workflow zones drift dead_letters"),
            ("secrets", "secrets"),
            ("outbox", "outbox notify"),
            ("audit", "audit events"),
            ("values", "aws_errors database_time failpoint id keyset reasons signing sync trigger"),
            ("definition", "definition"),
        ],
    },
    House {
        name: "publisher",
        src: "lambdas/publisher/src",
        rooms: &[
            ("process", "lib main"),
            ("entry", "entry"),
            ("drain", "drain"),
            ("sweep", "sweep"),
            ("dead letters", "letters"),
            ("converge", "converge"),
            ("publisher", "publisher"),
            ("converge: what it knows", "converge/backoff converge/desired converge/evidence"),
            ("dead letters: queues", "letters/source"),
            ("settle", "settle"),
            ("claim", "claim"),
            ("metrics", "metrics"),
            ("scheduler", "scheduler"),
            ("database", "database_error"),
            ("settings and clocks", "arn config failpoint last_check report stopwatch"),
        ],
    },
    House {
        name: "lambda_database",
        src: "lambdas/database/src",
        rooms: &[
            ("crate", "lib"),
            ("login", "login"),
            ("secret", "secret"),
            ("settings", "arguments"),
            ("names", "arn"),
        ],
    },
    House {
        name: "scheduler_key",
        src: "lambdas/key/src",
        rooms: &[("crate", "lib"), ("key", "key"), ("parts", "refusal secret")],
    },
    House {
        name: "notifier",
        src: "lambdas/notifier/src",
        rooms: &[
            ("process", "lib main"),
            ("lambda", "lambda"),
            ("notifier", "notifier"),
            ("AWS", "carrier"),
            ("settings and report", "config metrics report"),
        ],
    },
    House {
        name: "runner",
        src: "lambdas/runner/src",
        rooms: &[("process", "lib main"), ("lambda", "lambda"), ("delivery", "delivery"), ("settings", "config")],
    },
    House {
        name: "schedule",
        src: "schedule/src",
        rooms: &[
            ("crate", "lib"),
            ("timezones", "timezone"),
            ("zone history", "zone_change zone_history"),
            ("forms of a cron", "describe eventbridge parse text upcoming"),
            ("mistakes", "mistake"),
            ("times of a cron", "calendar next"),
            ("cron", "cron"),
            ("zones", "zone zone_error zones"),
            ("fires", "answer clock delivery fire name state"),
            ("fields", "item"),
            ("values", "bits days error field ids moment time"),
        ],
    },
    House {
        name: "db",
        src: "db/src",
        rooms: &[
            ("crate", "lib"),
            ("uses of a transaction", "kept"),
            ("uses of a pool", "listener migrate roles transaction zones"),
            ("pool", "pool"),
            ("connection", "connection"),
            ("server", "pooled proof server"),
            ("settings", "dry_run failpoint limits options tls"),
        ],
    },
    House {
        name: "stand-in",
        src: "local/scheduler/src",
        rooms: &[
            ("process", "lib main process"),
            ("server", "server browser_guard control_api queues"),
            ("settings", "config"),
            ("API", "scheduler/api scheduler/faults/injection scheduler/request scheduler/views"),
            ("stand-in", "stand_in"),
            ("fires", "fires"),
            ("invoke", "invoke dead_letters"),
            ("scheduler", "scheduler"),
            (
                "times",
                "scheduler/cron scheduler/expression scheduler/fields scheduler/clock_change scheduler/zone \
                 scheduler/zone_files",
            ),
            ("clock and output", "clock steps"),
        ],
    },
    House {
        name: "local",
        src: "local/stack/src",
        rooms: &[
            ("process", "lib main"),
            ("up", "up"),
            ("demo", "demo"),
            ("stack", "stack"),
            ("settings", "config"),
            ("machine", "client clock_and_zones postgres"),
        ],
    },
    House {
        name: "cli",
        src: "cli/src",
        rooms: &[
            ("process", "main"),
            ("nouns of users", "workflow schedule_noun events missed top team key freeze channel rule notification"),
            ("files", "apply import"),
            ("runs and progress", "run bulk backfill"),
            ("nouns of operators", "audit cron dlq drift jobs outbox verify"),
            ("tools of this machine", "listen login logs reference shell signature"),
            ("what nouns share", "listing named common merge_patch watch rows"),
            ("app and output", "client output print progress settings sign_in times"),
            ("environment", "config"),
        ],
    },
    House {
        name: "model",
        src: "model/src",
        rooms: &[
            ("crate", "lib"),
            ("protocols", "publishing execution"),
            ("checker", "check walk"),
            ("states", "publishing/state execution/state"),
        ],
    },
    House {
        name: "tests",
        src: "tests/support",
        rooms: &[
            ("crate", "lib"),
            ("proxies", "counting_proxy lossy_proxy pgbouncer proxy"),
            ("stories", "canaille publisher_process story"),
            ("servers", "collector moto runtime"),
            ("figures", "measure"),
            ("client", "api metric_names port statements timeout visitor"),
        ],
    },
];

/// The imports of the crates in the order of `HOUSES`, read once for all tests.
static IMPORTS: LazyLock<Vec<Imports>> = LazyLock::new(|| HOUSES.iter().map(House::imports).collect());

#[test]
fn every_crate_has_an_order() {
    let named: Vec<String> = HOUSES.iter().map(|house| house.name.to_owned()).collect();
    for package in workspace().into_keys() {
        assert!(named.contains(&package), "{package} has no order of its files: add it to HOUSES");
    }
}

#[test]
fn every_file_is_in_a_room() {
    for (house, imports) in HOUSES.iter().zip(&*IMPORTS) {
        for file in imports.keys() {
            assert!(house.room_of(file).is_some(), "{}/{file} is in no room: add it to HOUSES", house.src);
        }
        for name in house.rooms.iter().flat_map(|(_, names)| names.split_whitespace()) {
            let is_used = imports.keys().any(|file| is_within(file, name));
            assert!(is_used, "{}: HOUSES names {name}, and there is no such file or folder", house.name);
        }
    }
}

#[test]
fn no_imports_run_in_a_circle() {
    for (house, imports) in HOUSES.iter().zip(&*IMPORTS) {
        let circle = circle_in(imports);
        assert_eq!(circle, None, "{}: each of these files imports the next", house.src);
    }
}

#[test]
fn no_import_runs_upward() {
    for (house, imports) in HOUSES.iter().zip(&*IMPORTS) {
        let all = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        let wrong: Vec<_> = all.filter(|(from, to)| !house.permits(from, to)).collect();
        assert!(wrong.is_empty(), "{}: these files must not import these: {wrong:#?}", house.src);
    }
}

impl House {
    fn imports(&self) -> Imports {
        // As sources call it.
        let name = self.name.replace('-', "_");
        Sources::read(&name, &root().join(self.src)).imports()
    }

    /// The row of the room of a file.
    fn room_of(&self, file: &str) -> Option<usize> {
        let rows = self.rooms.iter().enumerate();
        let names = rows.flat_map(|(row, (_, names))| names.split_whitespace().map(move |name| (name, row)));
        let fitting = names.filter(|(name, _)| is_within(file, name));
        fitting.max_by_key(|(name, _)| name.len()).map(|(_, row)| row)
    }

    /// Whether one file may import the other; another test names a file without a room.
    fn permits(&self, from: &str, to: &str) -> bool {
        let (Some(from), Some(to)) = (self.room_of(from), self.room_of(to)) else { return true };
        from <= to
    }
}

/// Whether a file is this module, or in this folder.
fn is_within(file: &str, name: &str) -> bool {
    let module = file.strip_suffix(".rs").unwrap_or(file);
    let module = module.strip_suffix("/mod").unwrap_or(module);
    module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
