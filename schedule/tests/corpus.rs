//! Runs every input that the fuzzer was given or found again, on the stable compiler.

use std::{fs, path::Path};

use schedule::{Cron, Timezone, compile_cron, nominal_time, parse_timezone};

fn corpus(target: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(folder).expect("a corpus").map(|file| file.expect("a file").path());
    files.filter_map(|file| String::from_utf8(fs::read(file).expect("a file")).ok()).collect()
}

/// Any other text of the corpus is refused, without a panic.
#[test]
fn corpus_crons_keep_their_canonical_text() {
    let texts = corpus("cron");
    assert!(texts.len() >= 12, "the corpus is missing");
    for text in texts {
        let Ok(cron) = Cron::parse(&text) else { continue };
        assert_eq!(Cron::parse(&cron.to_string()), Ok(cron), "{text:?}");
        assert!(Cron::parse(&compile_cron(&cron, Timezone::UTC).expression).is_ok(), "{text:?}");
    }
}

#[test]
fn corpus_timezones_and_times_cause_no_panic() {
    for text in corpus("timezone") {
        assert!(parse_timezone(&text).map_or_else(|error| !error.to_string().is_empty(), |tz| tz.name() == text));
    }
    for text in corpus("time") {
        assert!(nominal_time(&text).is_ok_and(|time| time.timestamp() % 60 == 0) || nominal_time(&text).is_err());
    }
}
