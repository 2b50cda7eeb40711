//! Rows of real files against gimli's own answer for single addresses.
//!
//! gimli looks each address up through `.eh_frame_hdr` and evaluates that one function; its answer becomes
//! text here, by code that shares nothing with the crate's own conversion. Addresses are every boundary of
//! either side, and one byte before and after it.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Expression, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, UnwindTableRow, X86_64,
};
use object::{Object as _, ObjectSection as _};
use sidewinder_address::Svma;
use sidewinder_unwind::{EndReason, Entry, Rule, Source, unwind_table};

type Bytes<'data> = EndianSlice<'data, LittleEndian>;

/// More addresses than this are thinned out evenly: the rest of a big file repeats what is seen.
const MAX_ADDRESSES: usize = 80_000;

/// What gimli says of an address, in the columns of a row.
#[derive(PartialEq, Eq, Debug)]
enum Expected {
    Row {
        cfa: String,
        frame_pointer: String,
        return_address: String,
    },
    /// gimli has a row, but this crate doesn't claim to state it.
    Exotic,
    NoInformation,
}

struct Oracle<'data> {
    section: EhFrame<Bytes<'data>>,
    header: gimli::ParsedEhFrameHdr<Bytes<'data>>,
    bases: BaseAddresses,
}

impl<'data> Oracle<'data> {
    fn of(file: &object::File<'data>) -> Self {
        let data =
            |name| file.section_by_name(name).map(|section| (section.data().unwrap(), section.address()));
        let (eh_frame, eh_frame_address) = data(".eh_frame").unwrap();
        let (header, header_address) = data(".eh_frame_hdr").unwrap();
        let bases = BaseAddresses::default()
            .set_eh_frame(eh_frame_address)
            .set_eh_frame_hdr(header_address)
            .set_text(data(".text").unwrap().1);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).unwrap();
        Self { section: EhFrame::new(eh_frame, LittleEndian), header, bases }
    }

    /// Every address at which gimli's rows or functions begin or end.
    fn boundaries(&self) -> Vec<u64> {
        let mut context = UnwindContext::new();
        let mut boundaries = Vec::new();
        let mut entries = self.section.entries(&self.bases);
        while let Some(entry) = entries.next().unwrap() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            boundaries.push(fde.end_address());
            let mut rows = fde.rows(&self.section, &self.bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                boundaries.push(row.start_address());
            }
        }
        boundaries
    }

    fn expected(&self, context: &mut UnwindContext<usize>, address: u64) -> Expected {
        let table = self.header.table().unwrap();
        let row = table.unwind_info_for_address(
            &self.section,
            &self.bases,
            context,
            address,
            EhFrame::cie_from_offset,
        );
        match row {
            Ok(row) => self.describe(row).unwrap_or(Expected::Exotic),
            Err(gimli::Error::NoUnwindInfoForAddress) => Expected::NoInformation,
            Err(error) => panic!("gimli fails at {address:#x}: {error}"),
        }
    }

    fn describe(&self, row: &UnwindTableRow<usize>) -> Option<Expected> {
        let mut cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => format!("{}{offset:+}", name(*register)?),
            CfaRule::Expression(expression) => self.value(expression)?,
        };
        let mut frame_pointer = match row.register(X86_64::RBP) {
            None => "same".to_owned(),
            rule => self.place(rule)?,
        };
        let mut return_address = self.place(row.register(X86_64::RA))?;
        let from_cfa = |place: &str| match (place.strip_prefix("cfa"), row.cfa()) {
            (None, _) => Some(place.to_owned()),
            (Some(by), CfaRule::RegisterAndOffset { register, offset }) => {
                Some(format!("*({}{:+})", name(*register)?, offset + by.parse::<i64>().unwrap()))
            }
            (Some(_), CfaRule::Expression(_)) => None,
        };
        // What is said of the stack pointer counts, if it isn't what the CFA says.
        let stack_pointer = match row.register(X86_64::RSP) {
            None => cfa.clone(),
            Some(RegisterRule::Register(register)) => format!("{}+0", name(register)?),
            rule => from_cfa(&self.place(rule)?)?,
        };
        if stack_pointer != cfa {
            frame_pointer = from_cfa(&frame_pointer)?;
            return_address = from_cfa(&return_address)?;
            cfa = stack_pointer;
        }
        Some(Expected::Row { cfa, frame_pointer, return_address })
    }

    fn place(&self, rule: Option<RegisterRule<usize>>) -> Option<String> {
        match rule? {
            RegisterRule::Undefined => Some("undefined".to_owned()),
            RegisterRule::SameValue => Some("same".to_owned()),
            RegisterRule::Offset(offset) => Some(format!("cfa{offset:+}")),
            RegisterRule::Register(register) => Some(name(register)?.to_owned()),
            RegisterRule::Expression(expression) => match *self.operations(&expression) {
                [Operation::RegisterOffset { register, offset, .. }] => {
                    Some(format!("*({}{offset:+})", name(register)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn value(&self, expression: &UnwindExpression<usize>) -> Option<String> {
        use Operation::{And, Deref, Ge, Plus, PlusConstant, RegisterOffset, Shl, UnsignedConstant};
        let operations = self.operations(expression);
        match *operations {
            [RegisterOffset { register, offset, .. }, Deref { .. }] => {
                Some(format!("*({}{offset:+})", name(register)?))
            }
            [RegisterOffset { register, offset, .. }, Deref { .. }, PlusConstant { value }] => {
                Some(format!("*({}{offset:+})+{value}", name(register)?))
            }
            [
                RegisterOffset { register: X86_64::RSP, offset: 8, .. },
                RegisterOffset { register: X86_64::RA, offset: 0, .. },
                UnsignedConstant { value: 15 },
                And,
                UnsignedConstant { value: 10 | 11 },
                Ge,
                UnsignedConstant { value: 3 },
                Shl,
                Plus,
            ] => Some("plt".to_owned()),
            _ => None,
        }
    }

    fn operations(&self, expression: &UnwindExpression<usize>) -> Vec<Operation<Bytes<'data>>> {
        let Expression(bytes) = expression.get(&self.section).unwrap();
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
        let mut operations = Expression(bytes).operations(encoding);
        std::iter::from_fn(|| operations.next().unwrap()).collect()
    }
}

fn name(register: gimli::Register) -> Option<&'static str> {
    X86_64::register_name(register).filter(|name| name.starts_with('r') && register.0 < 16)
}

/// The places where the crate knows better than `.eh_frame`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Difference {
    /// An entry point, of which gimli knows no end.
    Root,
    /// Code that `.eh_frame` doesn't describe: `.init`, `.fini`, linkage tables, assembly.
    MachineCode,
}

fn compare(shown_as: &str, data: &[u8]) {
    let file = object::File::parse(data).unwrap();
    let oracle = Oracle::of(&file);
    let table = unwind_table(&file).unwrap();
    assert_eq!(table.summary().malformed_total(), 0, "{shown_as}: {:?}", table.summary());

    let mut addresses = oracle.boundaries();
    addresses.extend(table.rows().map(|row| row.start.0));
    addresses = addresses.iter().flat_map(|at| [at.saturating_sub(1), *at, at + 1]).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let step = addresses.len().div_ceil(MAX_ADDRESSES).max(1);
    let mut context = UnwindContext::new();
    let mut differences = BTreeMap::<Difference, usize>::new();
    let (mut compared, mut exotic) = (0, 0);
    for address in addresses.iter().step_by(step) {
        compared += 1;
        let expected = oracle.expected(&mut context, *address);
        let entry = table.lookup(Svma(*address));
        let agrees = match (&expected, &entry) {
            (Expected::Row { cfa, frame_pointer, return_address }, Entry::Rule(rule)) => {
                rule.cfa.to_string() == *cfa
                    && rule.frame_pointer.to_string() == *frame_pointer
                    && rule.return_address.to_string() == *return_address
            }
            (Expected::Exotic, Entry::End(EndReason::Unsupported(_))) => {
                exotic += 1;
                true
            }
            (Expected::NoInformation, Entry::End(EndReason::NoInformation)) => true,
            _ => false,
        };
        if !agrees && expected == Expected::NoInformation && !entry.rule().is_some_and(Rule::is_root) {
            assert!(
                table.summary().functions.contains_key(&Source::MachineCode),
                "{shown_as} at {address:#x}"
            );
            *differences.entry(Difference::MachineCode).or_default() += 1;
        } else if !agrees {
            assert!(
                entry.rule().is_some_and(Rule::is_root),
                "{shown_as} at {address:#x}: gimli says {expected:?}, the table {entry:?}"
            );
            *differences.entry(Difference::Root).or_default() += 1;
        }
    }
    eprintln!(
        "{shown_as}: {compared} of {} addresses compared, {exotic} beyond what rows state, {differences:?}",
        addresses.len()
    );
    assert!(compared > 0);
    assert!(
        differences.get(&Difference::Root).is_none_or(|roots| *roots <= 100),
        "{shown_as}: {differences:?}"
    );
    assert!(exotic * 1000 <= compared, "{shown_as}: {exotic} of {compared} can't be stated");
}

fn compare_file(candidates: &[&str]) {
    let found = candidates.iter().find_map(|path| Some((path, std::fs::read(path).ok()?)));
    match found {
        Some((path, data)) => compare(path, &data),
        None => eprintln!("SKIPPED: none of {candidates:?} is on this machine"),
    }
}

macro_rules! oracle {
    ($($name:ident: $($path:literal),+;)+) => {
        $(#[test]
        fn $name() {
            compare_file(&[$($path),+]);
        })+
    };
}

oracle! {
    rows_of_the_c_library_equal_gimlis: "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6";
    rows_of_the_dynamic_linker_equal_gimlis: "/lib64/ld-linux-x86-64.so.2";
    rows_of_the_cpp_library_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6";
    rows_of_libcrypto_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3";
    rows_of_openssl_equal_gimlis: "/usr/bin/openssl";
    rows_of_python_equal_gimlis: "/usr/bin/python3", "/usr/bin/python3.11";
    rows_of_sqlite_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib64/libsqlite3.so.0";
    rows_of_liblzma_equal_gimlis: "/usr/lib/x86_64-linux-gnu/liblzma.so.5", "/usr/lib64/liblzma.so.5";
    rows_of_bash_equal_gimlis: "/usr/bin/bash";
    rows_of_libllvm_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1";
    rows_of_a_rust_program_equal_gimlis: "/proc/self/exe";
}

/// The vDSO is an ELF file that exists in memory only: this process's own is read.
#[test]
fn rows_of_the_vdso_equal_gimlis() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(vdso) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return eprintln!("SKIPPED: this kernel gives its processes no vDSO");
    };
    let (start, end) = vdso.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut image = vec![0; (end - start) as usize];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    compare("vDSO", &image);
}

#[test]
fn a_file_without_section_headers_keeps_its_rows() {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    let mut stripped = whole.clone();
    stripped[0x28..0x30].fill(0); // e_shoff
    stripped[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    let table = |data: &[u8]| unwind_table(&object::File::parse(data).unwrap()).unwrap();
    let (whole, stripped) = (table(&whole), table(&stripped));
    assert!(whole.len() > 1000);
    // Without sections there are no symbols and no linkage tables to make rows of.
    let is_silent = |entry: &Entry| *entry == Entry::NO_INFORMATION;
    for row in whole.rows().chain(stripped.rows()) {
        let [one, other] = [&whole, &stripped].map(|table| table.lookup(row.start));
        assert!(one == other || is_silent(&one) || is_silent(&other), "{row}");
    }
    assert_eq!(stripped.summary().malformed_total(), 0);
}
