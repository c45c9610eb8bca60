//! What every process that the audit started has in common.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::bail;

/// How often an ending process is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// SIGTERM, and the end of the process, which must come in time.
pub(crate) fn terminate(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
    if !signalled.success() {
        bail!("kill -TERM failed with {signalled}");
    }
    for _ in 0..patience.as_millis() / LOOK.as_millis() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        #[allow(clippy::disallowed_methods, reason = "the audit is over, nothing else runs on this thread")]
        std::thread::sleep(LOOK);
    }
    bail!("it has not ended {} s after SIGTERM", patience.as_secs())
}
