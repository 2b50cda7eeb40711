//! `sidewinder top`: the busiest functions and processes in the terminal, while they run.

mod screen;
mod shown;

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidewinder_bpf::{Opener, Storage};
use sidewinder_kind::Kind;
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::Outcome;

use self::screen::Screen;
use super::{Ended, chosen, log_to_stderr, stop_flag_in_terminal};
use crate::cli::TopArgs;
use crate::collect::{Bounds, outcomes_so_far};
use crate::every::Every;
use crate::exit::{Cause, Failure};
use crate::live::{Live, Shown};
use crate::lock::lock;
use crate::naming::{Namer, Naming, NamingOptions};
use crate::privilege;
use crate::report_queue::ReportQueue;
use crate::sampling::debug_file::DebugRoots;
use crate::sampling::feed::Message;
use crate::sampling::{Sampler, SamplingError, SamplingOptions};
use crate::stats::Counted;
use crate::terminal::tell;

/// How often the rings are drained.
const POLL: Duration = Duration::from_millis(100);
/// How often it is counted how interrupts ended.
const COUNT: Duration = Duration::from_secs(1);
/// For symbol tables, names, and what is known of debug information.
const NAMES_BYTES: usize = 32 << 20;
/// For the events that are shown, and those that may be.
const WINDOW_BYTES: usize = 32 << 20;
/// Stacks that wait for tables.
const TABLES_BYTES: u64 = 32 << 20;

pub(crate) fn top(args: &TopArgs) -> Ended {
    // What is logged would tear the screen.
    log_to_stderr("off");
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::new(
            Cause::Usage,
            "top draws on a terminal, and this is none: `sidewinder record --table` prints a table anywhere",
        ));
    }
    let (scope, title) = chosen(&args.pid, &args.comm);
    let stop = stop_flag_in_terminal()?;
    let debug_roots = Arc::new(DebugRoots::open::<&std::path::Path>([]));
    let mut storage = Storage::uninit();
    let options = SamplingOptions {
        kernel_frames: !args.no_kernel,
        ..SamplingOptions::for_people(scope, args.frequency, TABLES_BYTES, &debug_roots)
    };
    let options = if args.pid.is_empty() { options } else { options.for_running_processes() };
    let opener = Opener::start().map_err(SamplingError::Thread)?;
    privilege::narrow(&opener).map_err(SamplingError::Thread)?;
    tell(format_args!("reading unwind tables ...\n"));
    let mut sampler = Sampler::new(&mut storage, options, opener.clone())?;
    sampler.start()?;

    let live = Live::within(Some(Bounds { time: screen::LONGEST, bytes: WINDOW_BYTES }));
    let shown = live.begin("top", title.clone(), Kind::Cpu { samples_per_second: args.frequency });
    let told = Mutex::<Vec<Outcome>>::default();
    let mut screen = Screen::new(title, args.frequency, args.seconds);
    let names = Names::new(!args.no_kernel, debug_roots, opener);
    let drawn = thread::scope(|threads| {
        let (queue, incoming) = ReportQueue::new();
        threads.spawn(|| names.take_all(incoming, &shown));
        // Neither naming nor drawing makes sampling wait.
        let drawing = threads.spawn(|| {
            let drawn = screen.run(&shown, &told, &stop);
            stop.store(true, Ordering::Relaxed);
            drawn
        });
        sample(&mut sampler, queue, &told, &stop);
        drawing.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that draws has panicked")))
    });
    drawn.map_err(|error| Failure::runtime("can't draw on the terminal", error))?;
    Ok(ExitCode::SUCCESS)
}

/// Samples until told to stop; where all has ended that was to be sampled, there is still something to look at.
fn sample(sampler: &mut Sampler<'_>, mut queue: ReportQueue, told: &Mutex<Vec<Outcome>>, stop: &AtomicBool) {
    let mut counting = Every::new(COUNT);
    while !stop.load(Ordering::Relaxed) {
        if sampler.is_over() {
            queue.flush("top");
            thread::sleep(POLL);
            continue;
        }
        sampler.poll(POLL, &mut queue.pending);
        queue.flush("top");
        if counting.is_due() {
            *lock(told) = outcomes_so_far(&Counted::of(sampler, queue.dropped()));
        }
    }
    sampler.stop(None, &mut queue.pending);
}

/// The processes, files and names that the screen shows events by.
struct Names {
    namer: Namer,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
}

impl Names {
    fn new(kernel: bool, debug_roots: Arc<DebugRoots>, opener: Opener) -> Self {
        let namer = Namer::new(NamingOptions {
            native: true,
            kernel,
            lines: false,
            inlines: true,
            budget_bytes: NAMES_BYTES,
            is_patient: false,
            debug_roots,
            opener: Some(opener),
        });
        Self { namer, processes: HashMap::new() }
    }

    fn take_all(mut self, incoming: Receiver<Vec<Message>>, shown: &Shown) {
        for message in incoming.into_iter().flatten() {
            shown.tee(&message, Naming { namer: &mut self.namer, processes: &self.processes });
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::File(id, facts) => self.namer.learn(id, facts),
            Message::ForgetFile(id) => self.namer.forget(id),
            Message::Process(key, description) => drop(self.processes.insert(key, description)),
            Message::Jit(key, place) => self.namer.learn_runtime(key, place),
            Message::Departed(key) => {
                self.namer.forget_process(key);
                self.processes.remove(&key);
            }
            Message::Event(_) => {}
        }
    }
}
