//! `sidewinder completions`: the scripts that clap generates, which also complete the IDs and names of running processes.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{CommandResult, print_result};
use crate::cli::Cli;

/// What a shell runs for the processes of this machine. The kernel's files need no other program.
const PIDS: &str = "cd /proc && printf '%s\\n' [0-9]*";
const TIDS: &str = "cd /proc && printf '%s\\n' [0-9]*/task/[0-9]* | sed 's|.*/||'";
const NAMES: &str = "cat /proc/[0-9]*/comm 2>/dev/null | sort -u";
/// The same in fish, which has no classes of characters in patterns of files.
const FISH_PIDS: &str = "__fish_complete_pids";
const FISH_TIDS: &str = "string replace -r '.*/' '' /proc/*/task/*";
const FISH_NAMES: &str = "cat /proc/*/comm 2>/dev/null | sort -u";

pub(crate) fn completions(shell: Shell) -> CommandResult {
    print_result(io::stdout().write_all(script(shell).as_bytes()))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sidewinder", &mut script);
    let script = String::from_utf8_lossy(&script);
    let complete_line = match shell {
        Shell::Bash => return bash(&script),
        Shell::Zsh => zsh,
        Shell::Fish => fish,
        _ => return script.into_owned(),
    };
    script.lines().map(|line| complete_line(line) + "\n").collect()
}

/// In bash, what completes an option is in the line after it: files, by default.
fn bash(script: &str) -> String {
    let mut source = None;
    let mut completed = String::new();
    for line in script.lines() {
        let words = match source.take().filter(|_| line.contains("compgen -f")) {
            Some(source) => line.replace("compgen -f", &format!("compgen -W \"$({source})\" --")),
            None => line.to_owned(),
        };
        source = match line.trim() {
            "--pid)" | "-p)" => Some(PIDS),
            "--tid)" | "-t)" => Some(TIDS),
            "--comm)" => Some(NAMES),
            _ => None,
        };
        completed.push_str(&words);
        completed.push('\n');
    }
    completed
}

/// In zsh, an option ends with the name of its value and what completes that: `:PID:_default`.
fn zsh(line: &str) -> String {
    let from = |command: &str| format!("{{compadd -- ${{(f)\"$({command})\"}}}}").replace('\'', "'\\''");
    if line.contains(":PID:_default") {
        line.replace(":PID:_default", &format!(":PID:{}", from(PIDS)))
    } else if line.contains(":TID:_default") {
        line.replace(":TID:_default", &format!(":TID:{}", from(TIDS)))
    } else if line.contains("--comm=[") {
        line.replace(":NAME:_default", &format!(":NAME:{}", from(NAMES)))
    } else {
        line.to_owned()
    }
}

/// In fish, each option is a line.
fn fish(line: &str) -> String {
    let options = [(" -l pid ", FISH_PIDS), (" -l tid ", FISH_TIDS), (" -l comm ", FISH_NAMES)];
    match options.iter().find(|(option, _)| line.contains(option)) {
        Some((_, source)) => format!("{line} -f -a \"({source})\""),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What bash would offer for a word after these.
    fn offered(words: &[&str]) -> Option<Vec<String>> {
        let script = script(Shell::Bash);
        let previous = words.last().copied().unwrap_or_default();
        let words = words.join(" ");
        let ask = format!(
            "{script}\nCOMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _sidewinder sidewinder '' '{previous}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let printed = Command::new("bash").args(["-c", &ask]).output();
        let Ok(printed) = printed.inspect_err(|_| eprintln!("SKIPPED: there is no bash here")) else {
            return None;
        };
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        Some(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn bash_offers_the_ids_and_names_of_running_processes() {
        let own_pid = std::process::id().to_string();
        for words in [
            &["sidewinder", "record", "-p"][..],
            &["sidewinder", "record", "--pid"],
            &["sidewinder", "record", "-t"],
            &["sidewinder", "top", "-p"],
            &["sidewinder", "check", "-p"],
        ] {
            let Some(offered) = offered(words) else { return };
            assert!(offered.contains(&own_pid), "{words:?}: {offered:?}");
        }
        // A test's thread has a name of its own.
        let leader = std::fs::read_to_string(format!("/proc/{own_pid}/comm")).unwrap();
        let names = offered(&["sidewinder", "record", "--comm"]).unwrap();
        assert!(names.contains(&leader.trim_end().to_owned()), "{names:?}");
    }

    #[test]
    fn other_shells_have_it_for_each_option_too() {
        let zsh = script(Shell::Zsh);
        for wrong in [":PID:_default", ":TID:_default"] {
            assert!(!zsh.contains(wrong), "{wrong}");
        }
        assert!(zsh.contains(":PID:{compadd") && zsh.contains("/comm 2>/dev/null"), "{zsh}");
        let fish = script(Shell::Fish);
        let options = fish.lines().filter(|line| line.contains(" -l pid "));
        assert!(
            options.clone().count() >= 3
                && options.clone().all(|line| line.ends_with("(__fish_complete_pids)\""))
        );
    }
}
