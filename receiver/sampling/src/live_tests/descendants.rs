//! Processes that were running before their parent came into scope, and later ones.

use std::os::unix::process::CommandExt;

use sidewinder_config::{Scope, ScopeMode, SelectedPid, Selector};

use super::*;

/// A shell that burns CPU, or has children that do. Dropping it ends all of them.
struct Family(Child);

impl Family {
    /// Waits until the shell has so many children.
    fn start(script: &str, children: usize) -> Self {
        let mut shell = Command::new("sh");
        let family = Self(shell.args(["-c", script]).stdin(Stdio::piped()).process_group(0).spawn().unwrap());
        family.wait_for_children(children);
        family
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Makes `read` in the shell return.
    fn close_input(&mut self) {
        drop(self.0.stdin.take());
    }

    fn wait_for_children(&self, count: usize) -> BTreeSet<u32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let children = children(self.pid());
            if children.len() == count {
                return children;
            }
            assert!(Instant::now() < deadline, "{children:?}, not {count}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn children(pid: u32) -> BTreeSet<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

const BURNS: &str = "while :; do :; done";

fn sampled(scope: SamplingScope, while_it_runs: impl FnOnce()) -> Option<BTreeSet<u32>> {
    let mut storage = Storage::uninit();
    let kinds = KindSet::new(Kind::Cpu { samples_per_second: 997 });
    let options = SamplingOptions::interactive(scope, kinds, 8 << 20, &std::sync::Arc::default());
    let mut sampler = sampler(&mut storage, options)?;
    sampler.start().unwrap();
    while_it_runs();
    let mut messages = poll_for(&mut sampler, Duration::from_secs(3));
    messages.append(&mut stop(&mut sampler));
    let pids = messages.into_iter().filter_map(|message| match message {
        Message::Event(event) => Some(event.process.pid),
        _ => None,
    });
    Some(pids.collect())
}

fn from_selectors(mode: ScopeMode, include: Selector, exclude: Selector) -> SamplingScope {
    SamplingScope::from_config(&Scope { mode, include, exclude })
}

fn by_pid(family: &Family) -> Selector {
    Selector::from_pids([SelectedPid::new(family.pid()).unwrap()])
}

/// Its children, and their children, those that run already and those that come; nobody else gets in.
#[test]
fn the_descendants_of_an_included_process_are_sampled() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let script = format!("({BURNS}) & sh -c '({BURNS}) & wait' & read line; ({BURNS}) & wait");
    let mut family = Family::start(&script, 2);
    let stranger = Family::start(BURNS, 0);
    let running = family.wait_for_children(2);
    let scope = from_selectors(ScopeMode::Processes, by_pid(&family), Selector::default());
    let Some(pids) = sampled(scope, || family.close_input()) else { return };
    let all = family.wait_for_children(3);
    // One of the three children only waits for its own child.
    let burning: BTreeSet<u32> =
        all.iter().flat_map(|pid| [vec![*pid], children(*pid).into_iter().collect()].concat()).collect();
    let expected: Vec<u32> = burning.into_iter().filter(|pid| children(*pid).is_empty()).collect();
    assert_eq!(expected.len(), 3, "the children that run already are {running:?}");
    assert!(
        expected.iter().all(|pid| pids.contains(pid)),
        "{expected:?} in {pids:?}; {running:?} ran already"
    );
    assert!(!pids.contains(&stranger.pid()), "{} in {pids:?}", stranger.pid());
}

/// An exclusion that missed the running children would sample what its owner keeps out.
#[test]
fn an_excluded_process_and_its_running_children_are_not_sampled() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let family = Family::start(&format!("({BURNS}) & {BURNS}"), 1);
    let other = Family::start(BURNS, 0);
    let mut excluded = family.wait_for_children(1);
    excluded.insert(family.pid());
    let scope = from_selectors(ScopeMode::Node, Selector::default(), by_pid(&family));
    let Some(pids) = sampled(scope, || ()) else { return };
    assert!(pids.contains(&other.pid()), "{pids:?}");
    assert!(pids.is_disjoint(&excluded), "{excluded:?} in {pids:?}");
}

#[test]
fn without_children_neither_running_nor_later_ones_are_sampled() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut family = Family::start(&format!("({BURNS}) & read line; ({BURNS}) & {BURNS}"), 1);
    let scope = SamplingScope::from_pids([family.pid()]).without_children();
    let Some(pids) = sampled(scope, || family.close_input()) else { return };
    assert_eq!(pids, BTreeSet::from([family.pid()]), "its children: {:?}", family.wait_for_children(2));
}
