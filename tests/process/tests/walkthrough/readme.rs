//! The script that a section of the README is.
//!
//! A block that begins with ```` ```sh ```` is run as it stands, command by command. One that begins with ```` ```text ````
//! is what the last command before it writes. There are no others, so that nothing looks like a command and is not run.

/// A command, and what it is said to write.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Step {
    /// Where it begins; lines count from 1.
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) output: Option<String>,
}

/// The steps of a section, in order.
///
/// # Errors
/// A block that would not be run, or not be compared.
pub(crate) fn steps(readme: &str, heading: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = section(readme, heading);
    if lines.clone().next().is_none() {
        return Err(format!("there is no section `{heading}`"));
    }
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            if line.starts_with("    ") {
                return Err(format!("line {number}: an indented block is not run; fence it as ```sh"));
            }
            continue;
        };
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        match (kind, steps.last_mut()) {
            ("sh", _) => {
                let commands = commands(&block);
                if commands.is_empty() {
                    return Err(format!("line {number}: no command is in this block"));
                }
                steps.extend(commands);
            }
            ("text", Some(Step { output: output @ None, .. })) => {
                *output = Some(block.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n"));
            }
            ("text", _) => return Err(format!("line {number}: no command before it writes this")),
            (kind, _) => return Err(format!("line {number}: `{kind}` is neither `sh` nor `text`")),
        }
    }
    Ok(steps)
}

/// What stands between backquotes in a section's prose, and begins with `beginning`.
pub(crate) fn quoted(readme: &str, heading: &str, beginning: &str) -> Vec<String> {
    let mut is_block = false;
    let mut prose = String::new();
    for (_, line) in section(readme, heading) {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    let quoted = prose.split('`').skip(1).step_by(2).filter(|text| text.starts_with(beginning));
    quoted.map(str::to_owned).collect()
}

/// The lines below a heading, up to the next one of the same rank, by their numbers.
fn section<'a>(readme: &'a str, heading: &str) -> impl Iterator<Item = (usize, &'a str)> + Clone {
    let numbered = readme.lines().enumerate().map(|(index, line)| (index + 1, line));
    let heading = format!("## {heading}");
    let below = numbered.skip_while(move |(_, line)| *line != heading).skip(1);
    below.take_while(|(_, line)| !line.starts_with("## "))
}

/// Cuts a block into commands: a line each, with the lines that it goes on in and its here-document.
fn commands(block: &[(usize, &str)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = block.iter();
    while let Some(&(line, text)) = lines.next() {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let mut command = vec![text];
        while command.last().is_some_and(|text| text.ends_with('\\')) {
            command.extend(lines.next().map(|(_, text)| *text));
        }
        if let Some((_, end)) = text.split_once("<<") {
            let end = end.trim_matches('\'');
            command.extend(lines.by_ref().map(|(_, text)| *text).take_while(|text| *text != end));
            command.push(end);
        }
        steps.push(Step { line, command: command.join("\n"), output: None });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "\
# a
## one
    not ours
## two
Prose with `tool --flag`, `other` and `tool
broken`.
```sh
tool new   # remark

# a remark alone
cat > file <<'END'
[x]

END
tool \\
  --more
```
```text
`tool no quotation`
```
### below two
```sh
tool end
```
## three
```rust
```
";

    #[test]
    fn a_section_is_a_script() {
        let steps = steps(README, "two").unwrap();
        let seen: Vec<_> =
            steps.iter().map(|step| (step.line, &*step.command, step.output.as_deref())).collect();
        assert_eq!(
            seen,
            [
                (8, "tool new   # remark", None),
                (11, "cat > file <<'END'\n[x]\n\nEND", None),
                (15, "tool \\\n  --more", Some("`tool no quotation`")),
                (23, "tool end", None),
            ]
        );
        assert_eq!(quoted(README, "two", "tool"), ["tool --flag", "tool broken"]);
    }

    #[test]
    fn what_would_not_be_run_is_a_mistake() {
        for (heading, told) in [
            ("one", "line 3: an indented block"),
            ("three", "line 26: `rust` is neither"),
            ("four", "no section"),
        ] {
            let error = steps(README, heading).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        for (block, told) in [
            ("```text\nx\n```", "line 2: no command"),
            ("```sh\n# remark\n```", "line 2: no command"),
            ("```sh\nx\n```\n```text\nx\n```\n```text\nx\n```", "line 8: no command"),
        ] {
            let error = steps(&format!("## x\n{block}\n"), "x").unwrap_err();
            assert!(error.contains(told), "{block}: {error}");
        }
    }
}
