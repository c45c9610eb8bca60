//! The shell of somebody who follows the README.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Stands before the exit code of a command, on a line of its own.
const END: &str = "=== end of the command:";
/// How long a command may write nothing. Generous: tools fetch packages, and compile components of many megabytes.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// Lines that may wait for their reader.
const LINES: usize = 1_024;

/// One shell for all commands, so that what goes on in the background is there for the next one.
pub(crate) struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Option<Receiver<String>>,
    reader: Option<JoinHandle<()>>,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    /// All that it wrote, as a terminal shows it.
    pub(crate) output: String,
}

impl Shell {
    /// A shell in a directory, with more in its environment.
    pub(crate) fn start(directory: &Path, variables: &[(&str, String)]) -> Self {
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(directory)
            .env_remove("TIDEGATE_CONFIG")
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: whatever it leaves running can be ended with it.
            .process_group(0)
            .spawn()
            .expect("bash is installed: the README's commands are for it");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = sync_channel(LINES);
        let reader = std::thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let mut stdin = child.stdin.take().expect("piped");
        // A test that is ended from outside ends its shell's input, and nothing stays behind.
        writeln!(stdin, "exec 2>&1; trap 'kill $(jobs -p) 2> /dev/null' EXIT").expect("the shell reads");
        Self { child, stdin: Some(stdin), lines: Some(lines), reader: Some(reader) }
    }

    /// Runs a command to its end; what it leaves in the background goes on.
    pub(crate) fn run(&mut self, command: &str) -> Outcome {
        let stdin = self.stdin.as_mut().expect("until it is dropped");
        writeln!(stdin, "{{\n{command}\n}} < /dev/null\nprintf '\\n%s %s\\n' '{END}' $?")
            .expect("the shell reads");
        let mut output: Vec<String> = Vec::new();
        loop {
            let lines = self.lines.as_ref().expect("until it is dropped");
            let Ok(line) = lines.recv_timeout(SILENCE_MAX) else {
                panic!("no end of `{command}` is in sight; it wrote:\n{}", output.join("\n"));
            };
            if let Some(code) = line.strip_prefix(END) {
                // Ours, unless it ended the last line of a command that did not.
                output.pop_if(|line| line.is_empty());
                let code = code.trim().parse().expect("an exit code");
                return Outcome { code, output: output.join("\n") };
            }
            output.push(line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Whatever is left in the good case: nothing.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        drop((self.stdin.take(), self.lines.take()));
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_share_a_shell_and_end_on_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let mut shell = Shell::start(directory.path(), &[("NAME", "value".to_owned())]);
        let said = shell.run("cat; printf '%s' \"$NAME\"; echo err >&2; sleep 600 > /dev/null &");
        assert_eq!((said.code, said.output.contains("value"), said.output.contains("err")), (0, true, true));
        assert_eq!(shell.run("cat > file <<'X'\na\nX").code, 0);
        let said = shell.run("cat file; kill %1");
        assert_eq!((said.code, said.output.lines().next()), (0, Some("a")));
        assert_eq!(shell.run("nothing-of-that-name").code, 127);
    }
}
