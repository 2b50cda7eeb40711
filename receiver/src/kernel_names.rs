//! Names of the kernel's functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use sidewinder_address::Avma;
use sidewinder_bpf::Opener;
use sidewinder_symbolize::{KernelFunction, KernelName, KernelSymbols};

/// Functions that are remembered. A busy machine is met in some hundred.
const CACHE_MAX: usize = 4096;

/// Asks the kernel for each function that is met, once. A kernel that can't be asked has its whole list read instead, when
/// the first name is wanted.
#[derive(Debug)]
pub(crate) struct KernelNameCache {
    opener: Option<Opener>,
    /// By start: the end, and the name.
    cache: BTreeMap<u64, (u64, Arc<str>)>,
    kallsyms: Option<KernelSymbols>,
}

impl KernelNameCache {
    pub(crate) fn new(opener: Option<Opener>) -> Self {
        Self { opener, cache: BTreeMap::new(), kallsyms: None }
    }

    /// The name of the function that holds an address.
    pub(crate) fn lookup(&mut self, address: Avma) -> Arc<str> {
        let before = self.cache.range(..=address.0).next_back();
        if let Some((_, (_, name))) = before.filter(|(_, (end, _))| address.0 < *end) {
            return Arc::clone(name);
        }
        match self.query_kernel(address) {
            Some(name) => name,
            None => {
                self.kallsyms.get_or_insert_with(KernelSymbols::read).lookup(address).display_name().into()
            }
        }
    }

    /// `None`: the kernel can't be asked.
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

    /// Functions of the kernel itself that have one name, in the list's order.
    fn listed() -> Vec<(u64, String)> {
        let list = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for line in list.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(start), Some("t" | "T"), Some(name), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let start = u64::from_str_radix(start, 16).unwrap_or_default();
            found.entry(start).or_default().push(name.to_owned());
        }
        found.remove(&0);
        found
            .into_iter()
            .filter_map(|(at, mut names)| Some((at, names.pop().filter(|_| names.is_empty())?)))
            .collect()
    }

    #[test]
    fn the_kernel_names_its_functions_as_its_list_does() {
        let listed = listed();
        let mut asked = KernelNameCache::new(Some(Opener::start().unwrap()));
        if listed.is_empty() || asked.query_kernel(Avma(listed[0].0)).is_none() {
            eprintln!("SKIPPED: the kernel names no function here");
            return;
        }
        let every = listed.len() / 500 + 1;
        let mut unnamed = 0;
        for (at, name) in listed.iter().step_by(every) {
            match &*asked.lookup(Avma(*at)) {
                // The list has marks, too, such as the end of all code.
                KernelName::UNNAMED => unnamed += 1,
                asked => assert_eq!(asked, name, "{at:#x}"),
            }
        }
        assert!(asked.cache.len() >= 400 && unnamed < 10, "{} of {}", unnamed, asked.cache.len());
        assert!(asked.kallsyms.is_none(), "nobody needed the list");
        assert_eq!(&*asked.lookup(Avma(8)), KernelName::UNNAMED);
    }
}
