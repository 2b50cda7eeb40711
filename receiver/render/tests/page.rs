//! The page in a real browser, where one is installed. Pictures of it are kept among the test artefacts.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use sidewinder_render::{
    Binary, BinaryIndex, Form, Frame, FrameIndex, FrameKind, Measure, Outcome, Profile, Severity,
    WeightedStack, write,
};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What a server in Rust with a C library might do: few functions, many ways through them.
fn server(stacks: usize, functions: usize) -> Profile {
    const NAMES: [(&str, FrameKind, u32); 14] = [
        ("std::rt::lang_start_internal", FrameKind::Rust, 0),
        ("server::connection::Connection<S>::serve", FrameKind::Rust, 0),
        ("<server::router::Router as tower::Service<http::Request<Body>>>::call", FrameKind::Rust, 0),
        ("serde_json::de::Deserializer<R>::parse_value", FrameKind::Rust, 0),
        ("std::vector<int, std::allocator<int> >::push_back(int&&)", FrameKind::Native, 0),
        ("sqlite3VdbeExec", FrameKind::Native, 2),
        ("sqlite3BtreeMovetoUnpacked", FrameKind::Native, 2),
        ("_int_malloc", FrameKind::Native, 1),
        ("__memmove_avx_unaligned_erms", FrameKind::Native, 1),
        ("runtime.mallocgc", FrameKind::Go, 0),
        ("entry_SYSCALL_64_after_hwframe", FrameKind::Kernel, 3),
        ("do_syscall_64", FrameKind::Kernel, 3),
        ("vfs_write", FrameKind::Kernel, 3),
        ("ext4_file_write_iter", FrameKind::Kernel, 3),
    ];
    let frames: Vec<Frame> = (0..functions.max(NAMES.len()))
        .map(|number| {
            let (name, kind, binary) = NAMES[number % NAMES.len()];
            let name = if number < NAMES.len() { name.to_owned() } else { format!("{name}::{number}") };
            Frame {
                name,
                is_named: true,
                system_name: String::new(),
                binary: Some(BinaryIndex(binary)),
                kind,
                address: 0,
                path: String::new(),
                line: 0,
            }
        })
        .collect();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let stack = |_| {
        let depth = 2 + random(14) + random(14);
        let mut at = 0;
        let mut frames = vec![FrameIndex(0)];
        let mut is_kernel = false;
        for level in 0..depth {
            // Mostly the same ways, sometimes new ones; the kernel does not call back.
            at = if random(5) < 4 { (at * 5 + 1 + level % 3 + random(2)) % 10 } else { random(functions) };
            is_kernel = is_kernel || (depth > 8 && level + 4 > depth && depth.is_multiple_of(3));
            at = if is_kernel { 10 + (level + 4).saturating_sub(depth).min(3) } else { at };
            frames.push(FrameIndex(at as u32));
        }
        frames.reverse();
        WeightedStack {
            frames,
            count: 1 + random(20) as u64,
            process: ["server", "server", "worker"][random(3)].into(),
            thread: "".into(),
        }
    };
    let stacks: Vec<_> = (0..stacks).map(stack).collect();
    let total = stacks.iter().map(|stack| stack.count).sum();
    let outcome = |name: &str, count, severity, help: &str| Outcome {
        name: name.to_owned(),
        count,
        severity,
        help: help.to_owned(),
    };
    let binary = |path: &str| Binary { path: path.to_owned(), build_id: None };
    Profile {
        title: String::from("target/release/server --listen 127.0.0.1:8080"),
        measure: Measure { name: String::from("cpu"), rate_hz: 997, period_ns: 1_003_009 },
        start: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        duration: Duration::from_secs(10),
        binaries: ["/srv/server", "/lib/libc.so.6", "/lib/libsqlite3.so.0", "[kernel]"].map(binary).to_vec(),
        frames,
        stacks,
        outcomes: vec![
            outcome("complete", total, Severity::Complete, ""),
            outcome(
                "no table",
                total / 150,
                Severity::Cut,
                "the binary's unwind table did not fit: raise memory_limit_mib",
            ),
            outcome("ring full", total / 900, Severity::Lost, "the receiver was late: give it more CPU"),
            outcome("idle", total * 2, Severity::Aside, "the CPU had nothing to do"),
        ],
    }
}

/// Writes a page to the folder of artefacts.
fn page(name: &str, profile: &Profile) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    write(profile, Form::Html, &mut std::io::BufWriter::new(std::fs::File::create(&path).unwrap())).unwrap();
    path
}

/// Runs a browser on a page, and gives what it prints; `None`, loudly, without one.
fn browse(page: &Path, fragment: &str, arguments: &[&str]) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    for browser in BROWSERS {
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--window-size=1280,1000",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("--virtual-time-budget=20000")
            .args(arguments)
            .arg(format!("file://{}#{fragment}", page.display()))
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) => return Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{browser}: {error}"),
        }
    }
    eprintln!("SKIPPED: no browser of {BROWSERS:?} is installed");
    None
}

fn element<'a>(document: &'a str, id: &str) -> &'a str {
    let (_, tail) =
        document.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("{id}: {document}"));
    tail.split_once('>').unwrap().1
}

#[test]
fn the_page_shows_functions_outcomes_and_matches() {
    let path = page("server.html", &server(3000, 14));
    let Some(document) = browse(&path, "search=sqlite3", &["--dump-dom"]) else { return };
    let matched = element(&document, "matched");
    assert!(
        matched.split_once("% match").is_some_and(|(share, _)| share.parse::<f64>().unwrap() > 1.0),
        "{matched}"
    );
    let rows = element(&document, "function-rows").split_once("</tbody>").unwrap().0;
    assert_eq!(rows.matches("<tr").count(), 2, "{rows}");
    assert!(element(&document, "outcome-text").contains("are lost"));
    assert!(element(&document, "legend").contains("kernel"));
    for (name, fragment, settings) in [
        ("page-light.png", "", "preferredColorScheme=1"),
        ("page-dark.png", "", "preferredColorScheme=0"),
        ("page-search.png", "search=sqlite3", "preferredColorScheme=1"),
        ("page-zoom.png", "zoom=3&root=bottom", "preferredColorScheme=1"),
    ] {
        let picture = path.with_file_name(name);
        let arguments =
            [format!("--screenshot={}", picture.display()), format!("--blink-settings={settings}")];
        browse(&path, fragment, &arguments.each_ref().map(String::as_str));
        assert!(std::fs::metadata(&picture).unwrap().len() > 10_000, "{}", picture.display());
    }
}

#[test]
fn keys_walk_zoom_and_reset() {
    let path = page("keys.html", &server(3000, 14));
    let keys = |keys: &str| {
        // Driven from within: a script is added that presses the keys, once the page's own has run.
        let driver = format!(
            "<script>for (const key of {keys:?}.split(' ')) {{ const on = document.getElementById('graph'); on.focus(); \
             on.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true }})); }}</script>"
        );
        let driven = path.with_file_name("driven.html");
        std::fs::write(&driven, std::fs::read_to_string(&path).unwrap() + &driver).unwrap();
        let document = browse(&driven, "", &["--dump-dom"])?;
        let text = |id| element(&document, id).split_once('<').unwrap().0.to_owned();
        Some((text("spoken"), element(&document, "path").matches("<button").count()))
    };
    let Some((all, 1)) = keys("ArrowUp") else { return };
    assert!(all.starts_with("all: "), "{all}");
    assert!(keys("ArrowDown").unwrap().0.starts_with("server: "));
    assert!(keys("ArrowDown ArrowRight").unwrap().0.starts_with("worker: "));
    assert!(keys("ArrowDown ArrowRight ArrowLeft").unwrap().0.starts_with("server: "));
    let (zoomed, path_steps) = keys("ArrowDown ArrowRight ArrowDown Enter").unwrap();
    assert!(
        zoomed.starts_with("std::rt::lang_start_internal: ") && path_steps == 3,
        "{zoomed}, {path_steps}"
    );
    assert_eq!(keys("ArrowDown ArrowDown Enter Escape").unwrap(), (all, 1));
    assert_eq!(keys("ArrowDown ArrowDown Enter Backspace").unwrap().1, 2);
}

#[test]
fn hostile_names_are_text() {
    const NAMES: [&str; 5] = [
        "</script><script>document.title='pwned'</script>",
        "<img src=x onerror=\"document.title='pwned'\">",
        "\u{1b}[31m\u{202e}\u{0}",
        "{{script}}<!--",
        "__proto__",
    ];
    let mut profile = server(50, 14);
    for (frame, name) in profile.frames.iter_mut().zip(NAMES) {
        frame.name = name.to_owned();
    }
    profile.frames[6].name = "x".repeat(10_000);
    profile.title = NAMES[0].to_owned();
    for outcome in &mut profile.outcomes {
        outcome.help = NAMES[1].to_owned();
    }
    let path = page("hostile.html", &profile);
    let Some(document) = browse(&path, "", &["--dump-dom"]) else { return };
    assert_eq!(document.matches("<script").count(), 2);
    assert!(!document.contains("<img"));
    assert!(!document.contains("<title>pwned"));
    let rows = element(&document, "function-rows").split_once("</tbody>").unwrap().0;
    assert!(rows.contains("&lt;/script&gt;") && rows.contains("__proto__"), "{rows}");
}

#[test]
fn a_hundred_thousand_stacks_are_shown() {
    let profile = server(100_000, 5000);
    let began = Instant::now();
    let path = page("large.html", &profile);
    let written = began.elapsed();
    let began = Instant::now();
    let Some(document) = browse(&path, "search=malloc", &["--dump-dom"]) else { return };
    let megabytes = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
    eprintln!("{megabytes:.1} MB, written in {written:?}, shown in {:?}", began.elapsed());
    assert!(element(&document, "matched").contains("% match"));
    assert!(element(&document, "more").contains("more of"));
}
