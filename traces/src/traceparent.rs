//! W3C Trace Context, version 00: the header `traceparent`.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Parses the header; `None` if it is not valid.
pub(crate) fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex =
        |part: &str, length| part.len() == length && part.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'));
    if version != "00" || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) || parts.next().is_some() {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

/// Returns the header that names a span as the parent.
pub(crate) fn write_traceparent(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_is_the_one_that_was_read() {
        for text in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-00",
        ] {
            assert_eq!(parse_traceparent(text).map(|context| write_traceparent(&context)).as_deref(), Some(text));
        }
    }

    #[test]
    fn wrong_headers_are_refused() {
        for text in [
            "",
            "00-x-y-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa01020304-01",
            "00-00000000000000000000000000000000-00f067aa01020304-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01-x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01",
        ] {
            assert_eq!(parse_traceparent(text), None, "{text}");
        }
    }
}
