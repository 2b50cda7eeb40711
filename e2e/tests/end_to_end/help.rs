//! What a shell completes is what the command takes.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement, sidewinder};

/// The names of the commands, by `--help`.
fn commands() -> Result<Vec<String>> {
    let help = sidewinder::run(&["--help"])?.log;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = lines.take_while(|line| !line.is_empty());
    let names: Vec<String> =
        listed.filter_map(|line| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned())).collect();
    ensure!(names.len() > 10, "{help}");
    Ok(names.into_iter().filter(|name| !name.is_empty() && name != "help").collect())
}

#[promise(Completions)]
fn bash_completes_commands_and_options() -> Result<()> {
    if !requirement::program("completions", "bash")? {
        return Ok(());
    }
    let script = "
        source <(\"$0\" completions bash)
        COMP_WORDS=(sidewinder \"$@\") COMP_CWORD=$# COMPREPLY=()
        _sidewinder sidewinder \"${*: -1}\" \"${@: -2:1}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let complete = |words: &[&str]| -> Result<Vec<String>> {
        let output = Command::new("bash")
            .args(["--norc", "-c", script])
            .arg(paths::sidewinder()?)
            .args(words)
            .stderr(Stdio::inherit())
            .output()?;
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    };
    let all = complete(&[""])?;
    for command in commands()? {
        ensure!(all.contains(&command), "{command} is not among {all:?}");
    }
    ensure!(!all.iter().any(|word| word == "exec-when-continued"), "{all:?}");
    assert_eq!(complete(&["record", "--no-k"])?, ["--no-kernel"]);
    assert_eq!(complete(&["record", "--unwind", "t"])?, ["tables"]);
    Ok(())
}
