//! What can be wrong ends in a clear message and the right exit code, or is counted.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_judge::{Chain, Judge};
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::{Expected, StolenTime};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::sidewinder::{Ended, Running};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{log, paths, requirement, session, sidewinder};

const OK: i32 = 0;
const RUNTIME: i32 = 1;
const USAGE: i32 = 2;
/// A privilege is missing, or the kernel lacks what can't be done without.
const NOT_POSSIBLE_HERE: i32 = 3;
const OWN_FAILURE: i32 = 125;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

fn assert_ends(arguments: &[&str], code: i32, says: &str) -> Result<()> {
    let Ended { status, log: said } = sidewinder::run(arguments)?;
    assert_eq!(status.code(), Some(code), "{arguments:?}: {said}");
    assert!(
        said.to_lowercase().contains(&says.to_lowercase()),
        "{arguments:?} does not say {says:?}: {said}"
    );
    Ok(())
}

#[promise(Questions)]
fn what_is_not_on_the_command_line_is_a_usage_error() -> Result<()> {
    assert_ends(&["record", "--no-such-flag"], USAGE, "--no-such-flag")?;
    assert_ends(&["no-such-command"], USAGE, "no-such-command")?;
    assert_ends(&["record", "-F", "0", "-d", "1s", "-a"], USAGE, "0")
}

/// Each tells what failed, where and why, and what to do now.
#[promise(Questions)]
fn a_wrong_call_is_told_the_next_step() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let no_profile = folder.path().join("no.pb.gz");
    fs::write(&no_profile, "no profile")?;
    let no_profile = no_profile.display().to_string();
    let output = folder.path().join("out.html").display().to_string();
    for (arguments, code, parts) in [
        (
            &["view", "/no/such.otlp"][..],
            USAGE,
            &["/no/such.otlp", "No such file", "next: give a .otlp, .pb.gz or .folded file"][..],
        ),
        (&["view", &no_profile], USAGE, &[&no_profile, "next: give"]),
        (
            &["view", "-o", "/no/such/out.html", "/no/such.otlp"],
            USAGE,
            &["/no/such/out.html", "next: choose"],
        ),
        (&["diff", &no_profile, &no_profile], USAGE, &[&no_profile, "next: give"]),
        (&["inspect", "/no/such"], USAGE, &["/no/such", "No such file", "next: give an executable"]),
        (&["inspect", &no_profile], USAGE, &[&no_profile, "ELF", "next: "]),
        (
            &["record", "-a", "-d", "1s", "-o", "/no/such/out.html"],
            USAGE,
            &["/no/such/out.html", "next: choose"],
        ),
        (
            &["record", "-a", "-d", "1s", "-o", &output, "--summary-json", "/no/such/summary"],
            USAGE,
            &["/no/such/summary", "next: choose"],
        ),
        (&["record", "-p", "nginx"], USAGE, &["nginx", "--pid", "--comm"]),
        (&["record", "-a", "-d", "5x"], USAGE, &["'5x'", "--duration", "10s"]),
        (&["record", "-a", "--span", "12"], USAGE, &["'12'", "16 hexadecimal digits"]),
        (&["record"], USAGE, &["--pid", "--comm", "--all", "COMMAND"]),
        (&["manual", "/proc/no"], RUNTIME, &["/proc/no", "next: choose a directory"]),
        (&["status", "--pid", "4294967295"], RUNTIME, &["4294967295", "next: leave --pid out"]),
        (&["run", "--config", "http://host/x"], USAGE, &["http", "next: name a file"]),
        (
            &["validate", "--config", "env:SIDEWINDER_NOWHERE"],
            USAGE,
            &["SIDEWINDER_NOWHERE", "next: set the variable"],
        ),
        (&["validate", "--config", "/no/such.yaml"], USAGE, &["/no/such.yaml", "next: check the path"]),
        (&["validate", "--set", "receivers.x"], USAGE, &["--set #1", "key=value", "next: "]),
    ] {
        let Ended { status, log: said } = sidewinder::run(arguments)?;
        assert_eq!(status.code(), Some(code), "{arguments:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{arguments:?} does not say {part:?}: {said}");
        }
    }
    Ok(())
}

/// Nobody writes to the pipe: to open it would take for ever.
#[promise(Record, test_all)]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU)?;
    let pipe = pipe.display().to_string();
    let says = "it is a named pipe, not a regular file";
    assert_ends(&["validate", "--config", &pipe], USAGE, says)?;
    let in_value = format!("exporters: {{ otlp_grpc: {{ endpoint: \"${{file:{pipe}}}\" }} }}");
    assert_ends(&["validate", "--config", &format!("yaml:{in_value}")], USAGE, says)?;
    assert_ends(&["view", &pipe], USAGE, says)?;
    assert_ends(&["diff", &pipe, &pipe], USAGE, says)?;
    assert_ends(&["inspect", &pipe], USAGE, says)
}

/// Without a command and a configuration, it says what it can do, and neither profiles nor writes a file.
#[promise(Questions)]
fn nothing_at_all_is_answered_by_the_help() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = sidewinder::command()?;
    command.current_dir(folder.path());
    let Ended { status, log: said } = Running::start(command)?.wait(Duration::from_secs(30))?;
    assert_eq!(status.code(), Some(USAGE), "{said}");
    for part in ["neither a command nor a configuration", "Usage: sidewinder", "record", "next: "] {
        assert!(said.contains(part), "does not say {part:?}: {said}");
    }
    assert!(!said.contains("\\u{"), "lines are escaped: {said}");
    assert_eq!(fs::read_dir(folder.path())?.count(), 0);
    Ok(())
}

#[promise(Configuration)]
fn files_that_a_configuration_names_are_opened_unless_they_are_elsewhere() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("key.pem");
    fs::write(&key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")?;
    let configuration = format!(
        "--config=yaml:{{receivers: {{profiling: }}, exporters: {{otlp_grpc: {{endpoint: 'collector:4317', \
         tls: {{insecure_skip_verify: true, cert_file: {0}, key_file: {0}}}}}, otlp_http: {{endpoint: 'https://collector', \
         tls: {{ca_file: /no/such/ca.pem}}}}}}, service: {{pipelines: {{profiles: {{receivers: [profiling], \
         exporters: [otlp_grpc, otlp_http]}}}}}}}}",
        key.display()
    );
    let Ended { status, log: said } = sidewinder::run(&["validate", &configuration])?;
    assert_eq!(status.code(), Some(USAGE), "{said}");
    for part in [
        "exporters::otlp_grpc::tls::key_file: it is a certificate, not a private key\n",
        "exporters::otlp_http::tls::ca_file: cannot read \"/no/such/ca.pem\": No such file",
        "add --skip-files",
    ] {
        assert!(said.contains(part), "does not say {part:?}: {said}");
    }
    assert_ends(&["validate", "--skip-files", &configuration], OK, "the configuration is valid")
}

#[promise(Formats)]
fn an_output_whose_form_is_unknown_is_a_usage_error_before_anything_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("profile.jpeg").display().to_string();
    assert_ends(&["record", "-a", "-d", "1s", "-o", &output], USAGE, ".folded")
}

#[promise(Record)]
fn a_process_that_is_gone_is_named() -> Result<()> {
    if !requirement::ebpf("a process that is gone")? {
        return Ok(());
    }
    let mut gone = Command::new("true").spawn()?;
    let pid = gone.id().to_string();
    gone.wait()?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp").display().to_string();
    assert_ends(&["record", "-p", &pid, "-d", "1s", "-o", &output], RUNTIME, &pid)?;
    assert_ends(&["record", "-p", &pid, "-d", "1s", "-o", &output], RUNTIME, "next: find it with")?;
    let output = folder.path().join("out.folded").display().to_string();
    assert_ends(
        &["record", "--comm", "nobody-is-called-so", "-d", "1s", "-o", &output],
        RUNTIME,
        "next: check with `ps",
    )
}

#[promise(Check)]
fn a_kernel_without_type_information_is_named() -> Result<()> {
    if !requirement::ebpf("a kernel without type information")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let empty = folder.path().join("btf");
    fs::create_dir(&empty)?;
    let hide_and_run = "mount --bind \"$1\" /sys/kernel/btf && shift && exec \"$@\"";
    for arguments in [&["record", "-a", "-d", "1s", "-o"][..], &["check"][..]] {
        // A mount namespace of its own: nobody else sees what is hidden.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hide_and_run, "sh"]).arg(&empty).arg(paths::sidewinder()?);
        command.args(arguments);
        if arguments[0] == "record" {
            command.arg(folder.path().join("out.folded"));
        }
        let ended = Running::start(command)?.wait(Duration::from_secs(30))?;
        assert_eq!(ended.status.code(), Some(NOT_POSSIBLE_HERE), "{arguments:?}: {}", ended.log);
        assert!(ended.log.contains("CONFIG_DEBUG_INFO_BTF"), "{arguments:?}: {}", ended.log);
    }
    Ok(())
}

#[promise(RecordCommand)]
fn the_exit_code_of_a_command_is_passed_on() -> Result<()> {
    if !requirement::ebpf("the exit code of a command")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.folded").display().to_string();
    let record = |command: &[&str]| sidewinder::run(&[&["record", "-o", &output, "--"], command].concat());
    for (command, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["true"], OK),
        (&["no-such-program-anywhere"], NOT_FOUND),
        (&["/etc/passwd"], NOT_EXECUTABLE),
    ] {
        let Ended { status, log: said } = record(command)?;
        assert_eq!(status.code(), Some(code), "{command:?}: {said}");
    }
    Ok(())
}

/// Runs the profiler without any capability, though still with the owner's rights to files.
fn without_capabilities(arguments: &[&str]) -> Result<Ended> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]);
    command.arg(paths::sidewinder()?).args(arguments).stdin(Stdio::null());
    Running::start(command)?.wait(Duration::from_secs(60))
}

#[promise(Privileges)]
fn without_privileges_it_says_what_it_needs() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return requirement::skip("without privileges", "dropping capabilities needs root");
    }
    if !requirement::program("without privileges", "setpriv")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp").display().to_string();
    for (arguments, code) in [
        (&["check"][..], NOT_POSSIBLE_HERE),
        (&["record", "-a", "-d", "1s", "-o", &output], NOT_POSSIBLE_HERE),
        (&["record", "-o", &output, "--", "true"], OWN_FAILURE),
    ] {
        let Ended { status, log: said } = without_capabilities(arguments)?;
        assert_eq!(status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains("CAP_"), "{arguments:?} names no capability: {said}");
    }
    Ok(())
}

#[promise(Configuration)]
fn wrong_yaml_is_told_by_path_line_and_the_nearest_right_key() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("wrong.yaml");
    let right = Settings::of_process(1).yaml("127.0.0.1:4317");
    fs::write(&path, right.replace("samples_per_second", "sample_per_second"))?;
    let path = path.display().to_string();
    let Ended { status, log: said } = sidewinder::run(&["validate", "--config", &path])?;
    assert_eq!(status.code(), Some(USAGE), "{said}");
    for part in ["wrong.yaml:3", "sample_per_second", "did you mean", "samples_per_second"] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }

    fs::write(&path, "receivers: [\n")?;
    let Ended { status, log: said } = sidewinder::run(&["validate", "--config", &path])?;
    assert_eq!(status.code(), Some(USAGE), "{said}");
    assert!(said.contains("wrong.yaml"), "{said}");

    fs::write(&path, right)?;
    let Ended { status, log: said } = sidewinder::run(&["validate", "--config", &path])?;
    assert_eq!(status.code(), Some(OK), "{said}");
    Ok(())
}

#[promise(Delivery)]
fn tls_without_any_certificate_authority_is_told_before_anything_is_sent() -> Result<()> {
    if !requirement::ebpf("TLS without any certificate authority")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tls.yaml");
    fs::write(
        &path,
        Settings::of_process(1).yaml("127.0.0.1:4317").replace("insecure: true", "insecure: false"),
    )?;
    let mut command = sidewinder::command()?;
    command.arg("--config").arg(&path).env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR");
    let ended = Running::start(command)?.wait(Duration::from_secs(30))?;
    assert_eq!(ended.status.code(), Some(USAGE), "{}", ended.log);
    assert!(ended.log.contains("ca_file"), "{}", ended.log);
    Ok(())
}

#[promise(Delivery, test_all)]
fn a_collector_that_comes_late_gets_everything() -> Result<()> {
    if !requirement::ebpf("a Collector that comes late")? {
        return Ok(());
    }
    let [grpc_port, http_port] = collector::free_ports()?;
    // Long enough for the pause between two attempts that has been reached when the Collector comes.
    let mut workload = Gated::start(workload::THREADS.command(&["12", "1"])?)?;
    let pid = workload.pid();
    let daemon = Daemon::start(&Settings::of_process(pid), &format!("127.0.0.1:{grpc_port}"))?;
    let stolen = StolenTime::start();
    workload.open()?;
    thread::sleep(Duration::from_secs(3));
    let collector = Collector::start_on(grpc_port, http_port)?;
    let report = workload.finish()?;
    let expected = Expected::of(997, report.cpu_ns, stolen.elapsed_ns());
    let ended = daemon.stop()?;
    let received = collector.stop()?;
    let summary = Summary::from_log(&ended.log).context("it has not said how it ended")?;
    let (events, expected) =
        (received.events_of(pid).count(), expected.but_for_missed(&summary).beside_others());
    assert!(expected.admits(events, 0.03), "{events} events, {expected}:\n{}", ended.log);
    Ok(())
}

#[promise(Delivery, test_all)]
fn what_a_collector_that_never_comes_costs_is_counted() -> Result<()> {
    if !requirement::ebpf("a Collector that never comes")? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(workload::THREADS.command(&["3", "1"])?)?;
    let daemon = Daemon::start(&Settings::of_process(workload.pid()), &format!("127.0.0.1:{port}"))?;
    let stolen = StolenTime::start();
    workload.open()?;
    let report = workload.finish()?;
    let expected = Expected::of(997, report.cpu_ns, stolen.elapsed_ns());
    let log = daemon.stop()?.log;
    assert!(log.contains(&format!("127.0.0.1:{port}")), "it does not say where it sends to:\n{log}");
    let dropped = log::entries(&log).find_map(|entry| entry.number("dropped"));
    let dropped = usize::try_from(dropped.with_context(|| format!("nothing was counted:\n{log}"))?)?;
    let summary = Summary::from_log(&log).context("it has not said how it ended")?;
    let expected = expected.but_for_missed(&summary).beside_others();
    assert!(expected.admits(dropped, 0.03), "{dropped} dropped, {expected}:\n{log}");
    Ok(())
}

#[promise(CompleteOrTruncated)]
fn a_library_with_broken_unwind_data_costs_its_own_frames_alone() -> Result<()> {
    if !requirement::ebpf("a library with broken unwind data")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("broken.so");
    fs::write(&library, with_garbled_eh_frame(&fs::read(workload::PLUGIN.compiled()?)?)?)?;
    let command = workload::LOADER.command(&["3".to_owned(), library.display().to_string()])?;
    let session = session::profile(command, 997)?;
    let pid = session.report.pid;
    let (events, expected) = (session.received.events_of(pid).count(), session.expected(997).beside_others());
    assert!(expected.admits(events, 0.03), "{events} events, {expected}");
    // Whatever was found without the data is right; whatever was not is marked.
    let verdict =
        Judge::default().verdict(session.received.events_of(pid), &Chain::InOrder(session.report.chain));
    let marked = session.received.events_of(pid).filter(|event| event.sample.outcome().is_some()).count();
    assert!(
        verdict.right + marked + verdict.kernel_events >= verdict.user_events,
        "{marked} marked, {verdict}"
    );
    Ok(())
}

/// Overwrites the section `.eh_frame` with bytes that are no unwind data; the program loader never looks there.
fn with_garbled_eh_frame(elf: &[u8]) -> Result<Vec<u8>> {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(elf)?;
    let (start, size) =
        file.section_by_name(".eh_frame").and_then(|section| section.file_range()).context("no .eh_frame")?;
    let mut garbled = elf.to_vec();
    let bytes =
        garbled.get_mut(start as usize..(start + size) as usize).context("the section lies outside")?;
    bytes
        .iter_mut()
        .zip(0_u8..=255_u8)
        .for_each(|(byte, value)| *byte = value.wrapping_mul(151).wrapping_add(7));
    Ok(garbled)
}
