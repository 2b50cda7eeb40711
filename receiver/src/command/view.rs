//! `sidewinder view` and `sidewinder diff`: profiles that were written earlier, to look at.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidewinder_render::{Form, Profile, TableOptions, difference, joined, write};

use super::{Ended, log_to_stderr, print_all, stop_flag_in_terminal, terminal_columns};
use crate::cli::{DiffArgs, ViewArgs};
use crate::exit::{Cause, Failure};
use crate::output::{Format, Output};
use crate::server::{Answer, Page, Server};
use crate::terminal::{is_coloured, tell};
use crate::{encode, import};

/// How often it is looked whether to end.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn view(args: &ViewArgs) -> Ended {
    log_to_stderr("warn");
    let written = match &args.output {
        Some(path) => Some((Format::of(path, args.format)?, Output::new(path)?)),
        None => None,
    };
    let profile = profile(&args.file)?;
    match written {
        Some((format, output)) => write_file(&profile, format, &output),
        None => show(&profile),
    }
}

pub(crate) fn diff(args: &DiffArgs) -> Ended {
    log_to_stderr("warn");
    let output = args.output.as_deref().map(output_of_page).transpose()?;
    let (before, after) = (profile(&args.before)?, profile(&args.after)?);
    let options = TableOptions {
        rows: args.rows,
        columns: terminal_columns(),
        is_coloured: is_coloured(&std::io::stdout()),
    };
    print_all(&difference(&before, &after, options))?;
    let both = joined(&before, &after);
    match output {
        Some(output) => write_file(&both, Format::Other(Form::Html), &output),
        None => show(&both),
    }
}

fn output_of_page(path: &Path) -> Result<Output, Failure> {
    match Format::of(path, None) {
        Ok(Format::Other(Form::Html)) => Output::new(path),
        _ => Err(Failure::new(Cause::Usage, format!("can't write a comparison to {}", path.display()))
            .then("only a page compares: give it a name that ends in .html")),
    }
}

fn profile(path: &Path) -> Result<Profile, Failure> {
    let failed = |why: import::ImportError| {
        Failure::new(Cause::Usage, format!("can't show {}", path.display())).because(why).then(
            "give what `record` has written as .otlp, .pb.gz or .folded, or anybody's pprof or folded stacks",
        )
    };
    let profile = import::profile(path).map_err(failed)?;
    if profile.total() == 0 {
        return Err(Failure::new(Cause::Usage, format!("{} holds no samples", path.display()))
            .then("record again, for longer, or while what is profiled works"));
    }
    Ok(profile)
}

fn write_file(profile: &Profile, format: Format, output: &Output) -> Ended {
    // Nobody else sets it: an interrupt ends us at once, and leaves what was there.
    let never = AtomicBool::new(false);
    match format {
        Format::Otlp => {
            let report = encode::report(profile).map_err(|error| {
                Failure::new(Cause::Usage, format!("can't write {}", output.path().display()))
                    .because(error)
                    .then("write another form: .pb.gz, .folded or .html take any number")
            })?;
            output.write(&never, |out| out.write_all(report.as_bytes()))?;
        }
        Format::Other(form) => output.write(&never, |out| write(profile, form, out))?,
    }
    tell(format_args!("wrote {}\n", output.path().display()));
    Ok(ExitCode::SUCCESS)
}

/// Serves the page on this machine alone until told to stop. Whoever else is on the machine would have to guess its
/// address.
fn show(profile: &Profile) -> Ended {
    let stop = stop_flag_in_terminal()?;
    let failed = |error: std::io::Error| Failure::runtime("can't serve the page", error);
    let mut page = Vec::new();
    write(profile, Form::Html, &mut page).map_err(|error| Failure::runtime("can't make the page", error))?;
    let page = String::from_utf8(page).map_err(|error| Failure::runtime("can't make the page", error))?;
    let path = format!("/{:016x}{:016x}/", rand::random::<u64>(), rand::random::<u64>());
    let answer: Arc<Answer> = {
        let path = path.clone();
        Arc::new(move |asked| (asked == path).then(|| Page::document(page.clone())))
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    let (_server, address) = Server::on_free_port(answer, runtime.handle()).map_err(failed)?;
    writeln!(std::io::stdout(), "http://{address}{path}\nOpen this in a browser; Ctrl-C ends.")
        .map_err(failed)?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL);
    }
    Ok(ExitCode::SUCCESS)
}
