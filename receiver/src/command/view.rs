//! `sidewinder view` and `sidewinder diff`: profiles that were written earlier, to look at.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use sidewinder_render::{Form, Profile, TableOptions, difference, joined, write};

use super::{ELSEWHERE, Ended, log_to_stderr, stop_flag, terminal_columns};
use crate::cli::{DiffArgs, ViewArgs};
use crate::exit::{Cause, Failure};
use crate::import;
use crate::server::{Answer, Page, Server};
use crate::terminal::is_coloured;

/// How often it is looked whether to end.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn view(args: &ViewArgs) -> Ended {
    log_to_stderr("warn");
    let profile = profile(&args.file)?;
    match &args.output {
        Some(path) => write_file(&profile, path),
        None => show(&profile),
    }
}

pub(crate) fn diff(args: &DiffArgs) -> Ended {
    log_to_stderr("warn");
    let (before, after) = (profile(&args.before)?, profile(&args.after)?);
    let options = TableOptions {
        rows: args.rows,
        columns: terminal_columns(),
        is_coloured: is_coloured(&std::io::stdout()),
    };
    write!(std::io::stdout(), "{}", difference(&before, &after, options))
        .map_err(|error| Failure::runtime("can't print", error))?;
    let both = joined(&before, &after);
    match &args.output {
        Some(path) if form_of(path)? != Form::Html => Err(Failure::new(
            Cause::Usage,
            format!("only a page compares: let {} end in .html", path.display()),
        )),
        Some(path) => write_file(&both, path),
        None => show(&both),
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

fn form_of(path: &Path) -> Result<Form, Failure> {
    Form::of_path(path, &[])
        .map_err(|error| Failure::new(Cause::Usage, "can't write the profile").because(error))
}

fn write_file(profile: &Profile, path: &Path) -> Ended {
    let form = form_of(path)?;
    let failed = |error| Failure::runtime(format!("can't write {}", path.display()), error).then(ELSEWHERE);
    let mut out = BufWriter::new(File::create(path).map_err(|error| failed(error.into()))?);
    write(profile, form, &mut out)
        .map_err(|error| failed(Box::<dyn std::error::Error + Send + Sync>::from(error)))?;
    out.flush().map_err(|error| failed(error.into()))?;
    eprintln!("wrote {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Serves the page on this machine alone until told to stop. Whoever else is on the machine would have to guess its
/// address.
fn show(profile: &Profile) -> Ended {
    let stop = stop_flag()?;
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
