//! Answers whose documents are nested deeper than a parser accepts by default.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;

/// How deep an answer may be nested. A body of a request is parsed to a depth of 127, so a workflow that an earlier version stored
/// may have inputs of almost this depth; a list and the audit log nest them a few deeper.
const DEEPEST_ANSWER: usize = 160;

/// Reads an answer of the API.
///
/// One deeply nested document must not make the page of a list unreadable that has it.
///
/// # Errors
/// Fails if the text is not JSON, is not what the type says, or is nested deeper than any answer.
pub fn read_answer<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut reader = Deserializer::from_slice(json);
    // Each further depth takes a part of the stack, so the parser keeps its own limit for what no answer can be.
    if measure_depth(json) <= DEEPEST_ANSWER {
        reader.disable_recursion_limit();
    }
    let answer = serde::Deserialize::deserialize(&mut reader)?;
    reader.end()?;
    Ok(answer)
}

/// How deep a document is nested, without parsing it.
fn measure_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn answers_may_be_nested_deeper_than_requests() {
        for (depth, is_read) in [(1, true), (127, true), (128, true), (160, true), (161, false), (100_000, false)] {
            assert_eq!(read_answer::<Value>(nested(depth).as_bytes()).is_ok(), is_read, "{depth}");
        }
        assert!(read_answer::<Value>(b"{} {}").is_err());
    }

    #[test]
    fn brackets_in_texts_are_not_counted() {
        for (json, depth) in [
            (r#"{"a": "[[[", "b": [1]}"#, 2),
            (r#"["\"[[", "\\", {}]"#, 2),
            (r#"[[], [], {"{": {}}]"#, 3),
            ("1", 0),
            ("]]]", 0),
        ] {
            assert_eq!(measure_depth(json.as_bytes()), depth, "{json}");
        }
    }
}
