//! A stripped program has its names, lines and inlined calls from a debuginfod server, if that is asked for.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::{requirement, sidewinder};

const PATIENCE: Duration = Duration::from_secs(60);
const SOURCE: &str = "static volatile unsigned long sink;
static inline __attribute__((always_inline)) void inlined_work(unsigned long i) { sink += i * i; }
__attribute__((noinline)) static void busy_work(unsigned long n) {
    for (unsigned long i = 0; i < n; i++)
        inlined_work(i);
}
int main(void) { for (;;) busy_work(1000000); }
";
const BUILD_ID: &str = "5157e11ed0123456789abcdef0123456789abcde";

/// elfutils' server, which serves the debug files of one directory until this goes.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(directory: &Path) -> Result<Self> {
        // The port is free again once it is known.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut server = Command::new("debuginfod");
        server.args(["-d", ":memory:", "-p", &port.to_string(), "-F"]).arg(directory);
        server.current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self {
            child: server.spawn().context("cannot run debuginfod")?,
            url: format!("http://127.0.0.1:{port}"),
        };
        let deadline = Instant::now() + PATIENCE;
        while !has_file(port) {
            ensure!(Instant::now() < deadline, "debuginfod does not serve {}", directory.display());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_file(port: u16) -> bool {
    let request = format!("GET /buildid/{BUILD_ID}/debuginfo HTTP/1.0\r\n\r\n");
    let mut status = [0; 12];
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .and_then(|mut stream| {
            stream.write_all(request.as_bytes()).and_then(|()| stream.read_exact(&mut status))
        })
        .is_ok_and(|()| status.ends_with(b" 200"))
}

fn run(command: &str, arguments: &[&str], directory: &Path) -> Result<()> {
    let status = Command::new(command).args(arguments).current_dir(directory).status();
    ensure!(status.with_context(|| format!("cannot run {command}"))?.success(), "{command} {arguments:?}");
    Ok(())
}

/// A second of the stripped program, with servers at `url`: the file that was written, and what was printed.
fn recorded(
    folder: &Path,
    options: &[&str],
    url: &str,
    cache: &str,
    output: &str,
) -> Result<(PathBuf, String)> {
    let output = folder.join(output);
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "199", "-d", "1", "--no-kernel"]).args(options).arg("-o").arg(&output);
    command.arg("--").arg(folder.join("stripped")).current_dir(folder);
    command.env("DEBUGINFOD_URLS", url).env("DEBUGINFOD_CACHE_PATH", folder.join(cache));
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok((output, ended.log))
}

fn has_names(output: &Path) -> Result<bool> {
    let text = fs::read_to_string(output)?;
    ensure!(text.contains("stripped"), "the program has no samples: {text}");
    Ok(text.lines().filter(|line| line.contains(";main;busy_work;inlined_work ")).count() > 0)
}

#[test]
fn a_stripped_program_has_names_lines_and_inlined_calls_from_a_server() -> Result<()> {
    let title = "debug information from a server";
    if !requirement::ebpf(title)? || !requirement::program(title, "debuginfod")? {
        return Ok(());
    }
    let kept = tempfile::tempdir()?;
    let folder = kept.path();
    let served = folder.join("served");
    fs::create_dir(&served)?;
    fs::write(served.join("work.c"), SOURCE)?;
    let build_id = format!("-Wl,--build-id=0x{BUILD_ID}");
    run("gcc", &["-g", "-O1", &build_id, "-o", "whole", "work.c"], &served)?;
    run("objcopy", &["--only-keep-debug", "whole", "whole.debug"], &served)?;
    run("objcopy", &["--strip-all", "whole", "../stripped"], &served)?;
    fs::remove_file(served.join("whole"))?;
    let server = Server::start(&served)?;
    let url = server.url.clone();

    // The variable alone asks nobody.
    let (output, log) = recorded(folder, &[], &url, "unused", "without.folded")?;
    ensure!(!has_names(&output)? && !folder.join("unused").exists(), "{log}");
    let (output, log) = recorded(folder, &["--debuginfod"], &url, "cache", "with.folded")?;
    ensure!(has_names(&output)?, "{log}");
    ensure!(log.contains("debuginfod: "), "{log}");
    let (output, _) = recorded(folder, &["--debuginfod"], &url, "cache", "with.otlp")?;
    let mut annotate = sidewinder::command()?;
    annotate.arg("annotate").arg(&output).args(["busy_work", "--debuginfod"]);
    annotate.env("DEBUGINFOD_URLS", &url).env("DEBUGINFOD_CACHE_PATH", folder.join("cache"));
    let printed = annotate.output()?;
    let printed = String::from_utf8_lossy(&printed.stdout);
    ensure!(printed.contains("inlined_work(i);"), "the source comes from the server too: {printed}");

    drop(server);
    let (output, log) = recorded(folder, &["--debuginfod"], &url, "cache", "cached.folded")?;
    ensure!(has_names(&output)?, "a file that is here needs no server: {log}");
    let (output, log) = recorded(folder, &["--debuginfod"], &url, "empty", "dead.folded")?;
    ensure!(!has_names(&output)?, "{log}");
    ensure!(log.matches("it is not asked for").count() == 1, "said once: {log}");
    Ok(())
}
