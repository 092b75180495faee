//! Logs a repeated warning once a minute.
//!
//! A warning is repeated if it comes from the same line of code and is about the same subject: its fields and those of
//! the spans around it, except fields that vary between attempts. So a component that retries every second, or an object
//! that a tenant writes in a loop, costs one line a minute.

use std::fmt::{Debug, Write};
use std::time::Instant;

use controller::repeated_lines::RepeatedLines;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// These fields differ between repetitions of one warning.
const VARYING_FIELDS: &[&str] = &["error", "detail", "revision", "effect"];
/// The span of a request, whose id is its own. Warnings within it name their subject.
const REQUEST: &str = "request";

/// A layer that drops repeated warnings and errors.
#[derive(Default)]
pub(super) struct RepeatedWarnings(RepeatedLines);

/// The fields of a span or a warning that name its subject.
#[derive(Default)]
struct WarningSubject(String);

impl Visit for WarningSubject {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !VARYING_FIELDS.contains(&field.name()) {
            let _ = write!(self.0, "{}={value:?} ", field.name());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RepeatedWarnings {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|span| span.name() != REQUEST) {
            let mut subject = WarningSubject::default();
            attributes.record(&mut subject);
            span.extensions_mut().insert(subject);
        }
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN {
            return true;
        }
        let line = format!("{}:{}", metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        let mut subject = WarningSubject(line);
        event.record(&mut subject);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(WarningSubject(of_span)) = span.extensions().get() {
                subject.0.push_str(of_span);
            }
        }
        self.0.is_due(&[&subject.0], Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A token file that could not be read cost a line every second, and a lease that could not be renewed one every three.
    #[test]
    fn a_warning_is_logged_once_for_each_subject() {
        let written = LogBuffer::default();
        let lines = written.clone();
        let format =
            tracing_subscriber::fmt().with_writer(move || lines.clone()).without_time().with_ansi(false);
        tracing::subscriber::with_default(format.finish().with(RepeatedWarnings::default()), || {
            for attempt in 0..3 {
                tracing::warn!(error = attempt, "cannot read the file");
                tracing::info!(attempt, "a decision");
                for object in ["web", "db"] {
                    let _span = tracing::error_span!("reconcile", object, revision = attempt).entered();
                    tracing::warn!(%attempt, "reconcile failed");
                    tracing::error!(error = attempt, "reconcile failed again");
                }
                let _span = tracing::error_span!("request", id = attempt).entered();
                tracing::warn!(name = "left", "cannot roll back");
            }
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |part: &str| text.matches(part).count();
        assert_eq!(count("cannot read the file"), 1, "{text}");
        assert_eq!(count("a decision"), 3, "info lines are not dropped: {text}");
        assert_eq!(count("reconcile failed again"), 2, "once for each object: {text}");
        assert_eq!(count("reconcile failed attempt"), 6, "each has another subject: {text}");
        assert_eq!(count("cannot roll back"), 1, "{text}");
    }
}
