//! What must hold for every text that a parser gets from outside. `parsers.rs` tries generated texts, and `fuzz/` lets
//! libFuzzer look for others.
//!
//! Each property returns whether the parser accepted the text, or a sentence about what does not hold.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::from_utf8;
use std::sync::{Arc, LazyLock};

use access::key_text::{KeyText, add_checksum};
use app::api::request::page::{encode_cursor, parse_cursor, parse_cursor_within};
use axum::http::Uri;
use egress::allowed::{Allowed, Names, Tenant};
use ledger::verify::Cursor;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;
use workflows::definition::action::{Action, Http, check_new_action};
use workflows::definition::redaction::{Audience, show_action};
use workflows::definition::reference::{BEGIN, referenced_names, replace_references};

/// Whether the parser accepted the text; an error if something does not hold.
pub(crate) type Judgement = Result<bool, String>;

/// Headers that an action must not set, because they frame or route the request.
const FRAMING: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"];
/// Blocks that are not global, from the IANA registries as of 2025, written again here: the product has a table of its own.
const INSIDE_V4: [(Ipv4Addr, u32); 14] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// A cursor is refused, or is written again as a cursor of the same key, and lies within its list.
pub(crate) fn judge_cursor(text: &str) -> Judgement {
    let forms = [text.to_owned(), encode_cursor(text)];
    let mut is_accepted = false;
    for form in &forms {
        if let Ok(Some(cursor)) = parse_cursor::<Cursor>(Some(form)) {
            is_accepted = true;
            holds(parse_cursor(Some(&encode_cursor(cursor))) == Ok(Some(cursor)), || format!("{form}: {cursor:?}"))?;
        }
        if let Ok(Some(id)) = parse_cursor::<Uuid>(Some(form)) {
            is_accepted = true;
            holds(parse_cursor(Some(&encode_cursor(id))) == Ok(Some(id)), || format!("{form}: {id}"))?;
        }
        let (low, high) = (1_000, 2_000);
        if let Ok(Some(id)) = parse_cursor_within::<i64>(Some(form), Some(low), Some(high)) {
            is_accepted = true;
            holds((low..high).contains(&id), || format!("{form}: {id} is outside of {low}..{high}"))?;
            holds(parse_cursor(Some(&encode_cursor(id))) == Ok(Some(id)), || format!("{form}: {id}"))?;
        }
    }
    Ok(is_accepted)
}

/// A key is refused, or has a correct checksum or the form of version 0.1; no change of one character keeps a checksum.
pub(crate) fn judge_key(text: &str) -> Judgement {
    // A text almost never has a correct checksum, so it gets one here.
    let completed = text.get(..59).map(|checked| add_checksum(checked.to_owned()));
    let mut is_accepted = false;
    for form in [Some(text), completed.as_deref()].into_iter().flatten() {
        let Some(key) = KeyText::parse(form) else { continue };
        is_accepted = true;
        holds(form.starts_with(key.prefix()) || form[3..].starts_with(key.prefix()), || form.to_owned())?;
        if form.starts_with("cb_") {
            holds(key.prefix().len() == 12 && form.len() == 59, || format!("{form} is no key of version 0.1"))?;
            continue;
        }
        let is_made = form.len() == 65 && add_checksum(form[..59].to_owned()) == form;
        holds(is_made && key.prefix().len() == 16, || format!("{form} has another checksum or length"))?;
        let is_base_62 = form[4..].bytes().all(|digit| digit.is_ascii_alphanumeric());
        holds(is_base_62, || format!("{form} has a character that is no digit to the base 62"))?;
        for at in 0..form.len() {
            let other = if form.as_bytes()[at] == b'7' { "8" } else { "7" };
            let changed = format!("{}{other}{}", &form[..at], &form[at + 1..]);
            holds(KeyText::parse(&changed).is_none(), || format!("{changed} is {form} with another character"))?;
        }
    }
    Ok(is_accepted)
}

/// A URL that may be called has no address inside, whatever its name resolves to, and the client connects to the host
/// that was checked.
pub(crate) fn judge_url(text: &str) -> Judgement {
    let Ok(Action::Http(http)) = Action::parse(&json!({"type": "http", "method": "GET", "url": text})) else {
        return Ok(false);
    };
    let url = http.url;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    holds(is_plain, || format!("{text:?} is accepted as {url}"))?;
    let allowed = Allowed::default().with_http(true).with_names(Names::Given(Arc::new(addresses_of)));
    let tenant = Tenant { team_id: None, hosts: &[] };
    // The product limits the time of a lookup, which needs a runtime. These lookups take none.
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().enable_time().build().unwrap());
    if RUNTIME.block_on(allowed.check_now(&url, tenant)).is_err() {
        return Ok(false);
    }
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let found = literal.map_or_else(|_| addresses_of(host), |address| vec![address]);
    for address in found {
        holds(!is_inside(address), || format!("{text:?} leads to {address}"))?;
        holds(allowed.permits_address(address), || format!("{text:?} leads to {address}, which is not permitted"))?;
    }
    let is_local = host.trim_end_matches('.').rsplit('.').next().is_some_and(|last| last == "localhost");
    holds(!is_local, || format!("{text:?} leads to this machine"))?;
    // The HTTP client parses the text of the URL again.
    if let Ok(uri) = url.as_str().parse::<Uri>() {
        holds(uri.host() == Some(host), || format!("{text:?}: {host} is checked, and {:?} is called", uri.host()))?;
        holds(uri.port_u16() == url.port(), || format!("{text:?}: another port is called: {uri}"))?;
    }
    Ok(true)
}

/// References are replaced each once, and nothing else in the document changes.
pub(crate) fn judge_references(text: &str) -> Judgement {
    // What is inserted below is in no text.
    let text = &*text.replace('\u{1}', "");
    let action = json!({"type": "http", "method": text, "url": text, "headers": {"a": text},
                        "body": {"deep": [{"b": text}, 1, null, text], "names": {text: true}}});
    let names = referenced_names(&action);
    let with = |value: &dyn Fn(&str) -> String| {
        let mut replaced = action.clone();
        replace_references(&mut replaced, &names.keys().map(|name| (name.clone(), value(name))).collect());
        replaced
    };
    let mut untouched = action.clone();
    replace_references(&mut untouched, &HashMap::new());
    holds(untouched == action, || format!("{text:?} changes without values"))?;
    let same = with(&|name| format!("{BEGIN}{name}}}"));
    holds(same == action, || format!("{text:?} becomes {same} by its own references"))?;
    let marked = with(&|_| "\u{1}".to_owned());
    let outside = ["method", "url", "type"].iter().all(|field| marked[*field] == action[*field]);
    holds(outside, || format!("{text:?} is replaced outside of headers and body"))?;
    let written: usize = names.keys().map(|name| text.matches(&format!("{BEGIN}{name}}}")).count()).sum();
    let inserted = |value: &Value| value.as_str().unwrap_or_default().matches('\u{1}').count();
    let body = &marked["body"]["deep"];
    for value in [&marked["headers"]["a"], &body[0]["b"], &body[3]] {
        holds(inserted(value) == written, || format!("{text:?} has {written} references, and became {value}"))?;
    }
    let is_well_formed = names.keys().all(|name| !name.contains('}') && !name.contains(BEGIN));
    holds(is_well_formed, || format!("{text:?} refers to {names:?}"))?;
    Ok(!names.is_empty())
}

/// An action is refused, or sends only what it may, is written again as the same action, and its views hide its headers.
pub(crate) fn judge_action(text: &str) -> Judgement {
    let Ok(document) = serde_json::from_str::<Value>(text) else { return Ok(false) };
    let Ok(action) = Action::parse(&document) else { return Ok(false) };
    let has_nul = document.to_string().replace("\\\\", "").contains("\\u0000");
    holds(!has_nul, || format!("{text} has a NUL"))?;
    let Action::Http(http) = &action else { return Ok(true) };
    let is_plain = matches!(http.url.scheme(), "http" | "https") && http.url.username().is_empty();
    holds(is_plain && http.url.password().is_none() && http.url.has_host(), || format!("{text}: {}", http.url))?;
    for (name, value) in &http.headers {
        let is_ours = ["x-cronbox-", "webhook-"].iter().any(|ours| name.as_str().starts_with(ours));
        holds(!is_ours && !FRAMING.contains(&name.as_str()), || format!("{text} sets {name}"))?;
        holds(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), || format!("{text}: {name}"))?;
        holds(value.is_sensitive(), || format!("{text}: {name} is shown by the HTTP client"))?;
    }
    for audience in [Audience::Viewer, Audience::Editor] {
        let shown = show_action(&document, audience);
        let is_hidden = shown["headers"].as_object().into_iter().flatten().all(|(_, value)| value.is_null());
        holds(is_hidden, || format!("{text} is shown as {shown}"))?;
    }
    // A URL is written in its normal form, which may be longer, and without the tabs that a URL parser skips.
    let is_written = http.url.as_str().len() <= 2_048 && !http.url.as_str().contains(BEGIN);
    if is_written && check_new_action(&document).is_ok() {
        let written = write_http(http);
        holds(Action::parse(&written) == Ok(action.clone()), || format!("{text} is written as {written}"))?;
    }
    Ok(true)
}

fn holds(does: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if does { Ok(()) } else { Err(what()) }
}

/// A name server of the attacker: the name itself says the addresses, some of them inside.
fn addresses_of(name: &str) -> Vec<IpAddr> {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let v4 = IpAddr::V4(Ipv4Addr::from(hash));
    match hash % 4 {
        0 => vec![v4],
        1 => vec![Ipv4Addr::new(1, 1, 1, 1).into(), v4],
        2 => vec![Ipv6Addr::from((u128::from(hash) << 96) | 1).into()],
        _ => vec![Ipv4Addr::new(1, 1, 1, 1).into()],
    }
}

/// Whether an address, or the IPv4 address in it, is not global.
fn is_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => INSIDE_V4.iter().any(|(block, bits)| (u32::from(v4) ^ u32::from(*block)) >> (32 - bits) == 0),
        IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), v6.segments()) {
            (Some(v4), _) => is_inside(v4.into()),
            (None, [0x64, 0xff9b, 0, 0, 0, 0, high, low]) => {
                is_inside(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into())
            }
            (None, [0x2002, ..] | [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..]) => true,
            (None, [first, ..]) => first >> 13 != 1,
        },
    }
}

fn write_http(http: &Http) -> Value {
    let headers: BTreeMap<&str, &str> = http
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), from_utf8(value.as_bytes()).ok()?)))
        .collect();
    json!({"type": "http", "method": http.method.as_str(), "url": http.url.as_str(), "headers": headers, "body": http.body})
}
