//! Parsers of what comes from outside, with generated and changed texts. The properties are in `properties.rs`; `make fuzz`
//! tries the same ones with libFuzzer, which knows what each text reaches.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::Size;
use crate::properties::{self, Judgement};
use crate::report::Tally;

/// How many accepted texts are kept and changed again.
const KEPT: usize = 500;
/// The longest text in bytes, so that one try costs little.
const LONGEST: usize = 3_000;
/// After how many texts that get through an attack has seen enough.
const ENOUGH: usize = 20;
/// Parts that parsers treat specially, of all grammars.
const PARTS: [&str; 64] = [
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1500",
    "1e9",
    "/",
    "//",
    "\\",
    "@",
    ":",
    "#",
    "?",
    "&",
    "%",
    "%00",
    "%2f",
    "%40",
    ".",
    "..",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    "null",
    "true",
    "\t",
    "\n",
    "\r\n",
    "\0",
    " ",
    "\u{ad}",
    "\u{200b}",
    "\u{feff}",
    "é",
    "１",
    "。",
    "http://",
    "https://",
    "localhost",
    "127.0.0.1",
    "0x7f.1",
    "017700000001",
    "[::1]",
    "[::ffff:7f00:1]",
    "169.254.169.254",
    ".internal",
    "xn--",
    "${secret:",
    "${",
    "}",
    "secret",
    "cba_",
    "cbt_",
    "cbs_",
    "cb_",
    "_",
    "\\u0000",
    "\"headers\":{\"",
    "x-cronbox-",
];

/// One parser: its property, and texts that it accepts or nearly accepts.
#[derive(Clone, Copy)]
pub(crate) struct Parser {
    judge: fn(&str) -> Judgement,
    seeds: &'static [&'static str],
}

/// The cursors of pages.
pub(crate) static CURSORS: Parser = Parser {
    judge: properties::judge_cursor,
    seeds: &[
        "1500",
        "1772442000000001/1772442000000000/7/",
        "1772442000000001/1772442000000000/7/1772442060000000",
        "01890000-0000-7000-8000-000000000000",
        "MTUwMA",
        "MDE4OTAwMDAtMDAwMC03MDAwLTgwMDAtMDAwMDAwMDAwMDAw",
    ],
};
/// Keys.
pub(crate) static KEYS: Parser = Parser {
    judge: properties::judge_key,
    seeds: &[
        "cbt_0000Example0ThisKeyOpensNothingItIsForTheDocumentation12ewVI5",
        "cba_0000Example0ThisKeyOpensNothingItIsForTheDocumentation12",
        "cbs_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
        "cb_0123456789ab_AAAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAA_",
    ],
};
/// URLs of actions.
pub(crate) static URLS: Parser = Parser {
    judge: properties::judge_url,
    seeds: &[
        "https://api.example.com/hook?key=1#a",
        "http://user:pass@a.example:8443/",
        "https://127.0.0.1/",
        "https://[2606:4700::1111]:8443/a",
        "https://[::ffff:10.0.0.1]/",
        "https://1.1.1.1/",
        "https://[64:ff9b::a00:1]/",
        "http://2130706433/",
        "https://a.localhost./",
        "https://bücher.example/ä",
    ],
};
/// References to secrets of a team.
pub(crate) static REFERENCES: Parser = Parser {
    judge: properties::judge_references,
    seeds: &[
        "Bearer ${secret:a}",
        "${secret:a}${secret:b}",
        "${secret:${secret:a}}",
        "${secret:a${secret:b}",
        "${secret:}",
    ],
};
/// Actions of workflows.
pub(crate) static ACTIONS: Parser = Parser {
    judge: properties::judge_action,
    seeds: &[
        r#"{"type":"log","message":"hi"}"#,
        r#"{"type":"http","method":"POST","url":"https://a.example/b","headers":{"authorization":"Bearer x","X-A":"1"},"body":{"a":[1,{"secret":"s"}]}}"#,
        r#"{"type":"http","method":"GET","url":"https://a.example","headers":{"x-a":"1","x-A":"2"},"body":null}"#,
        r#"{"type":"http","method":"HEAD","url":"http://1.1.1.1:8080/?q=%00","headers":{"a":{"sealed":"1:x"}}}"#,
        r#"{"type":"http","method":"PUT","url":"https://a.example","headers":{"Content-Type":"text/plain"},"body":"${secret:a}"}"#,
    ],
};

/// Tries texts for a time. A try is one text; without an accepted one, the attack proves nothing.
pub(crate) async fn attack_parser(parser: &'static Parser, size: Size) -> Tally {
    // For each change the same texts; otherwise others each time. What gets through is printed in full.
    let (budget, seed) = match size {
        Size::Ci => (Duration::from_secs(4), 1),
        Size::Full => (Duration::from_secs(60), rand::random()),
    };
    tokio::task::spawn_blocking(move || try_texts(*parser, budget, seed)).await.unwrap()
}

fn try_texts(parser: Parser, budget: Duration, seed: u64) -> Tally {
    let mut random = StdRng::seed_from_u64(seed);
    let mut pool: Vec<String> = parser.seeds.iter().map(|&seed| seed.to_owned()).collect();
    let (mut tally, began) = (Tally::default(), Instant::now());
    let mut accepted = parser.seeds.iter().filter(|seed| try_text(parser, seed, &mut tally)).count();
    while began.elapsed() < budget && tally.through.len() < ENOUGH {
        let text = change(&pool, &mut random);
        if !try_text(parser, &text, &mut tally) {
            continue;
        }
        accepted += 1;
        // An accepted text is changed again, so that the texts leave the seeds step by step.
        if pool.len() < KEPT {
            pool.push(text);
        } else {
            let at = random.random_range(parser.seeds.len()..KEPT);
            pool[at] = text;
        }
    }
    if accepted * 1_000 < tally.tries {
        tally.fail(format!("only {accepted} of {} texts were accepted: the attack proves little", tally.tries));
    }
    tally
}

/// Whether the parser accepts the text. A panic gets through, too.
fn try_text(parser: Parser, text: &str, tally: &mut Tally) -> bool {
    let judged = catch_unwind(|| (parser.judge)(text));
    let broken = match &judged {
        Ok(Ok(_)) => None,
        Ok(Err(what)) => Some(what.clone()),
        Err(_) => Some(format!("{text:?} makes the parser panic")),
    };
    tally.record(broken.is_none(), || broken.unwrap_or_default());
    matches!(judged, Ok(Ok(true)))
}

/// One of the texts, changed in one to four places.
fn change(pool: &[String], random: &mut StdRng) -> String {
    let mut text = pool[random.random_range(0..pool.len())].clone().into_bytes();
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=text.len());
        let end = (at + random.random_range(0..=8)).min(text.len());
        match random.random_range(0..6) {
            0 => drop(text.splice(at..end, [])),
            1 => drop(text.splice(at..end, [random.random_range(b' '..=b'~')])),
            2 => drop(text.splice(at..end, PARTS[random.random_range(0..PARTS.len())].bytes())),
            3 => text.insert(at, random.random()),
            4 => {
                let again = text[at..end].repeat(random.random_range(1..=20));
                drop(text.splice(at..at, again));
            }
            _ => {
                let other = pool[random.random_range(0..pool.len())].as_bytes();
                let from = random.random_range(0..=other.len());
                drop(text.splice(at.., other[from..].iter().copied()));
            }
        }
    }
    text.truncate(LONGEST);
    String::from_utf8_lossy(&text).into_owned()
}
