//! Names of the kernel's functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use sidewinder_address::Avma;
use sidewinder_bpf::Opener;
use sidewinder_symbolize::{KernelFunction, KernelName, KernelSymbols};

/// The maximum number of cached functions. A busy machine needs some hundred.
const CACHE_MAX: usize = 4096;

/// Queries the kernel once for each function that is looked up. If the kernel can't be queried, reads all of
/// `/proc/kallsyms` at the first look-up instead.
#[derive(Debug)]
pub(crate) struct KernelNameCache {
    opener: Option<Opener>,
    /// By start address: the end address, and the name.
    cache: BTreeMap<u64, (u64, Arc<str>)>,
    kallsyms: Option<KernelSymbols>,
}

impl KernelNameCache {
    pub(crate) fn new(opener: Option<Opener>) -> Self {
        Self { opener, cache: BTreeMap::new(), kallsyms: None }
    }

    /// The name of the function that contains an address.
    pub(crate) fn lookup(&mut self, address: Avma) -> Arc<str> {
        let cached = self.cache.range(..=address.0).next_back();
        if let Some((_, (_, name))) = cached.filter(|(_, (end, _))| address.0 < *end) {
            return Arc::clone(name);
        }
        match self.query_kernel(address) {
            Some(name) => name,
            None => {
                self.kallsyms.get_or_insert_with(KernelSymbols::read).lookup(address).display_name().into()
            }
        }
    }

    /// Queries the kernel for a function and caches its name; `None`: the kernel can't be queried.
    fn query_kernel(&mut self, address: Avma) -> Option<Arc<str>> {
        let Ok(Some(text)) = self.opener.as_ref()?.kernel_symbol(address.0) else {
            self.opener = None;
            return None;
        };
        let (start, end, name) = match KernelFunction::parse(address, &text) {
            Some(function) => (function.start.0, function.end.0, function.name),
            None => (address.0, address.0.saturating_add(1), KernelName::UNNAMED),
        };
        if self.cache.len() >= CACHE_MAX {
            self.cache.clear();
        }
        let name: Arc<str> = name.into();
        self.cache.insert(start, (end, Arc::clone(&name)));
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of the kernel itself, without modules, that have a single name, by address.
    fn listed() -> Vec<(u64, String)> {
        let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let mut functions: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for line in kallsyms.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(start), Some("t" | "T"), Some(name), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let start = u64::from_str_radix(start, 16).unwrap_or_default();
            functions.entry(start).or_default().push(name.to_owned());
        }
        functions.remove(&0);
        functions
            .into_iter()
            .filter_map(|(at, mut names)| Some((at, names.pop().filter(|_| names.is_empty())?)))
            .collect()
    }

    #[test]
    fn names_from_the_kernel_match_kallsyms() {
        let listed = listed();
        let mut names = KernelNameCache::new(Some(Opener::start().unwrap()));
        if listed.is_empty() || names.query_kernel(Avma(listed[0].0)).is_none() {
            eprintln!("SKIPPED: the kernel names no function here");
            return;
        }
        let step = listed.len() / 500 + 1;
        let mut unnamed = 0;
        for (at, name) in listed.iter().step_by(step) {
            match &*names.lookup(Avma(*at)) {
                // kallsyms also contains marker symbols, such as the end of all code.
                KernelName::UNNAMED => unnamed += 1,
                queried => assert_eq!(queried, name, "{at:#x}"),
            }
        }
        assert!(names.cache.len() >= 400 && unnamed < 10, "{} of {}", unnamed, names.cache.len());
        assert!(names.kallsyms.is_none(), "kallsyms was not needed");
        assert_eq!(&*names.lookup(Avma(8)), KernelName::UNNAMED);
    }
}
