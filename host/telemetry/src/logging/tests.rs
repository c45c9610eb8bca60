use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the log holds after `talk`, begun with `filter`.
fn log(filter: &str, format: LogFormat, talk: impl FnOnce(&LogHandle)) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let (subscriber, handle) =
        subscriber(filter, format, false, move || writer.clone()).expect("a valid filter");
    tracing::subscriber::with_default(subscriber, || talk(&handle));
    let bytes = lines.0.lock().clone();
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_level_changes_while_running() {
    let text = log("info", LogFormat::Text, |handle| {
        tracing::debug!("before");
        handle.set_filter("debug").expect("a valid filter");
        tracing::debug!("between");
        handle.set_filter("warn").expect("a valid filter");
        tracing::info!("after");
    });
    assert!(text.contains("between"), "{text}");
    assert!(!text.contains("before") && !text.contains("after"), "{text}");
}

#[test]
fn a_wrong_filter_changes_nothing() {
    let text = log("info", LogFormat::Text, |handle| {
        let error = handle.set_filter("tidegate=loud").expect_err("no such level");
        assert_eq!(error.to_string(), "log filter `tidegate=loud` is not valid");
        tracing::info!("still here");
    });
    assert!(text.contains("still here"), "{text}");
}

#[test]
fn json_lines_are_flat_objects() {
    let text = log("info", LogFormat::Json, |_| tracing::info!(flow = "tenants", "flow {}", "running"));
    let line: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(line["flow"], "tenants");
    assert_eq!(line["message"], "flow running");
    assert_eq!(line["level"], "INFO");
}

#[test]
fn text_lines_have_no_colour_away_from_a_terminal() {
    let text = log("info", LogFormat::Text, |_| tracing::warn!("plain"));
    assert!(text.contains("WARN plain"), "{text:?}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn a_level_is_about_the_hosts_own_lines() {
    let talk = |_: &LogHandle| {
        tracing::debug!("ours");
        tracing::debug!(target: "h2::codec", "theirs");
        tracing::warn!(target: "h2::codec", "their warning");
    };
    let text = log("debug", LogFormat::Text, talk);
    assert!(text.contains("ours") && text.contains("their warning"), "{text}");
    assert!(!text.contains("theirs"), "{text}");
    assert!(log("h2=debug", LogFormat::Text, talk).contains("theirs"));
    assert_eq!(log("off", LogFormat::Text, talk), "");
    assert_eq!(log("error", LogFormat::Text, talk), "");
}
