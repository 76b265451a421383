//! A span: one piece of work of a program, which may have a parent in another program.

use std::borrow::Cow;
use std::fmt::Display;

use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, Value};

use crate::export::tracer;
use crate::traceparent::{parse_traceparent, write_traceparent};

tokio::task_local! {
    /// The span of the request that this task serves.
    static CURRENT: Span;
}

/// A span that has begun, or nothing while traces are off. It ends with its last clone.
#[derive(Clone, Debug, Default)]
pub struct Span(Option<Context>);

/// What a span does for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answers a request.
    Server,
    /// It sends a request and waits for the answer.
    Client,
    /// It processes what its parent has stored or sent, and its parent does not wait for it.
    Consumer,
}

/// The parent of a span.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'a> {
    /// A span of another program, by its `traceparent`. Without one, or if it is not valid, the span begins a trace.
    Header(Option<&'a str>),
    /// A span of this program.
    Span(&'a Span),
}

impl Span {
    /// Begins a span. While traces are off it makes no name, allocates nothing and returns nothing.
    pub fn begin(kind: Kind, parent: Parent<'_>, name: impl FnOnce() -> Cow<'static, str>) -> Self {
        let Some(tracer) = tracer() else { return Self(None) };
        let builder = SpanBuilder::from_name(name()).with_kind(kind.into());
        let span = match parent {
            Parent::Span(Self(Some(parent))) => tracer.build_with_context(builder, parent),
            Parent::Span(Self(None)) => tracer.build_with_context(builder, &Context::new()),
            Parent::Header(header) => {
                let parent = header.and_then(parse_traceparent);
                let context = Context::new();
                let context = parent.map_or(context.clone(), |parent| context.with_remote_span_context(parent));
                tracer.build_with_context(builder, &context)
            }
        };
        Self(Some(Context::new().with_span(span)))
    }

    /// Sets an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = self.recording() {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Sets an attribute to the text of a value, which is made only if the span is recorded.
    pub fn set_text(&self, key: &'static str, value: impl Display) {
        if let Some(context) = self.recording() {
            context.span().set_attribute(KeyValue::new(key, value.to_string()));
        }
    }

    /// Marks the span as failed. The word is a code, never text of a client or of another server.
    pub fn fail(&self, error_type: &'static str) {
        self.fail_with(error_type);
    }

    /// Marks the span as failed by the status of an answer.
    pub fn fail_with_status(&self, status: u16) {
        self.fail_with(status);
    }

    fn fail_with(&self, error_type: impl Display) {
        if let Some(context) = self.recording() {
            context.span().set_attribute(KeyValue::new("error.type", error_type.to_string()));
            context.span().set_status(Status::error(""));
        }
    }

    /// The `traceparent` for those whose parent this span is; `None` while traces are off.
    ///
    /// A span that is not sampled has one, too. It says that its children are not sampled either.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        self.0.as_ref().map(|context| write_traceparent(context.span().span_context()))
    }

    /// Does the work of a request: [`current_span`] is this span meanwhile.
    pub fn scope<T, F: Future<Output = T>>(&self, work: F) -> impl Future<Output = T> + use<T, F> {
        CURRENT.scope(self.clone(), work)
    }

    fn recording(&self) -> Option<&Context> {
        self.0.as_ref().filter(|context| context.span().is_recording())
    }
}

/// The span of the request that this task serves; nothing outside of one.
#[must_use]
pub fn current_span() -> Span {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Client => Self::Client,
            Kind::Consumer => Self::Consumer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traces are off in this process.
    #[tokio::test]
    async fn spans_are_nothing_while_traces_are_off() {
        let header = Parent::Header(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01"));
        let span = Span::begin(Kind::Server, header, || panic!("a name is made"));
        span.set("key", 1);
        span.fail("timeout");
        assert_eq!(span.traceparent(), None);
        assert_eq!(span.scope(async { current_span().traceparent() }).await, None);
        assert_eq!(current_span().traceparent(), None);
    }
}
