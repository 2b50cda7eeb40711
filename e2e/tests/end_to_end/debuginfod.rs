//! A stripped program has its names, lines and inlined calls from a debuginfod server, if that is asked for.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
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

/// A proxy in front of a server of the loopback interface, whatever server a request names. Returns its port, and the first lines
/// of the requests that it passes on.
fn proxy_before(server: &Server) -> Result<(u16, Receiver<String>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let server = server.url.trim_start_matches("http://").to_owned();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (server, sender) = (server.clone(), sender.clone());
            thread::spawn(move || pass_on(&client, &server, |request| drop(sender.send(request))));
        }
    });
    Ok((port, requests))
}

/// Passes requests of one connection on, each by a connection of its own, as proxies do: without the host in its first line.
fn pass_on(client: &TcpStream, server: &str, seen: impl Fn(String)) -> io::Result<()> {
    let mut head = String::new();
    let mut lines = BufReader::new(client);
    while lines.read_line(&mut head)? > 2 {}
    let (first, rest) = head.split_once("\r\n").unwrap_or_default();
    seen(first.to_owned());
    let path = first.split(' ').nth(1).and_then(|url| url.splitn(4, '/').nth(3)).unwrap_or_default();
    let mut server = TcpStream::connect(server)?;
    // The server ends the connection after its answer, and so does this.
    write!(server, "GET /{path} HTTP/1.0\r\n{rest}")?;
    io::copy(&mut server, &mut &*client)?;
    client.shutdown(std::net::Shutdown::Both)
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
    recorded_with(folder, options, url, cache, output, &[])
}

/// As [`recorded`], with more variables in the environment.
fn recorded_with(
    folder: &Path,
    options: &[&str],
    url: &str,
    cache: &str,
    output: &str,
    variables: &[(&str, String)],
) -> Result<(PathBuf, String)> {
    let output = folder.join(output);
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "199", "-d", "1", "--no-kernel"]).args(options).arg("-o").arg(&output);
    command.arg("--").arg(folder.join("stripped")).current_dir(folder);
    command.env("DEBUGINFOD_URLS", url).env("DEBUGINFOD_CACHE_PATH", folder.join(cache));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let ended = sidewinder::Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok((output, ended.log))
}

fn has_names(output: &Path) -> Result<bool> {
    let text = fs::read_to_string(output)?;
    ensure!(text.contains("stripped"), "the program has no samples: {text}");
    Ok(text.lines().filter(|line| line.contains(";main;busy_work;inlined_work ")).count() > 0)
}

#[promise(Names)]
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

    // A server that only the proxy finds.
    let (port, requests) = proxy_before(&server)?;
    let proxies = [("http_proxy", format!("http://127.0.0.1:{port}")), ("no_proxy", "localhost".to_owned())];
    let url_of_proxy = "http://debuginfod.invalid:8002";
    let (output, log) =
        recorded_with(folder, &["--debuginfod"], url_of_proxy, "proxied", "proxied.folded", &proxies)?;
    ensure!(has_names(&output)?, "{log}");
    let request = requests.try_recv().context("nothing came through the proxy")?;
    ensure!(request == format!("GET {url_of_proxy}/buildid/{BUILD_ID}/debuginfo HTTP/1.1"), "{request}");
    let wrong = [("http_proxy", "socks5://127.0.0.1:1".to_owned())];
    let refused = recorded_with(folder, &["--debuginfod"], &url, "proxied", "refused.folded", &wrong);
    let refused = refused.map(|(_, log)| log).unwrap_or_else(|error| error.to_string());
    ensure!(refused.contains("http_proxy is not the URL of an HTTP proxy"), "{refused}");

    drop(server);
    let (output, log) = recorded(folder, &["--debuginfod"], &url, "cache", "cached.folded")?;
    ensure!(has_names(&output)?, "a file that is here needs no server: {log}");
    let (output, log) = recorded(folder, &["--debuginfod"], &url, "empty", "dead.folded")?;
    ensure!(!has_names(&output)?, "{log}");
    ensure!(log.matches("it is skipped for").count() == 1, "said once: {log}");
    Ok(())
}
