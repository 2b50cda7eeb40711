//! Frame pointers are followed exactly where they are right.

mod ranges;

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_judge::elf::{Base, Elf, FramePointer, ReturnAddress, Rule};
use sidewinder_e2e_judge::step::{Registers, Stepper};
use sidewinder_e2e_judge::{Chain, Judge, Verdict};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{self, Settings, Switch};
use sidewinder_e2e_support::workload::{self, Program};

use self::ranges::FramePointerRanges;

const SAMPLES_PER_SECOND: u32 = 997;
/// How many instructions at marked places are looked at, at least.
const INSTRUCTIONS: usize = 20_000;
/// More of them than these are confirmed by calls.
const CONFIRMED_BY_CALLS: usize = INSTRUCTIONS / 100;
/// How many are executed for that at the most.
const INSTRUCTIONS_MAX: usize = 600_000;

/// What a step to the caller finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Caller {
    sp: u64,
    bp: u64,
    return_address: u64,
}

fn by_frame_pointer(stepper: &Stepper, registers: Registers) -> Result<Caller> {
    Ok(Caller {
        sp: registers.bp + 16,
        bp: stepper.word(registers.bp)?,
        return_address: stepper.word(registers.bp + 8)?,
    })
}

fn by_rule(stepper: &Stepper, registers: Registers, rule: Rule) -> Result<Caller> {
    let (base, offset) = rule.cfa.context("the CFA is no register plus a number")?;
    let base = match base {
        Base::StackPointer => registers.sp,
        Base::FramePointer => registers.bp,
    };
    let cfa = base.wrapping_add_signed(offset);
    let bp = match rule.frame_pointer {
        FramePointer::Same => registers.bp,
        FramePointer::AtCfa(offset) => stepper.word(cfa.wrapping_add_signed(offset))?,
        FramePointer::Other => anyhow::bail!("the frame pointer is elsewhere"),
    };
    let ReturnAddress::AtCfa(offset) = rule.return_address else {
        anyhow::bail!("the return address is elsewhere")
    };
    Ok(Caller { sp: cfa, bp, return_address: stepper.word(cfa.wrapping_add_signed(offset))? })
}

#[promise(HybridUnwinding)]
fn at_each_instruction_marked_for_frame_pointers_they_lead_where_unwind_data_and_calls_say() -> Result<()> {
    let program = workload::WORDS_FP_STATIC.compiled()?;
    let (elf, marked) = (Elf::read(&program)?, FramePointerRanges::of(&program)?);
    let mut rules: HashMap<u64, Option<Rule>> = HashMap::new();
    let mut stepper = Stepper::start(workload::WORDS_FP_STATIC.command(&["60"])?)?;
    let (mut executed, mut at_marked, mut confirmed_by_calls) = (0, 0, 0);
    // Calls are known from the first instruction on: until the program calls something, which may take long, none confirms anything.
    while (at_marked < INSTRUCTIONS || confirmed_by_calls <= CONFIRMED_BY_CALLS)
        && executed < INSTRUCTIONS_MAX
    {
        executed += 1;
        let registers = stepper.registers();
        let rule = *rules.entry(registers.pc).or_insert_with(|| elf.rule_at(registers.pc));
        let pending = stepper.pending_return();
        // Of code without unwind data, which is marked by what it does, only calls can tell.
        if marked.contains(registers.pc) && (rule.is_some() || pending.is_some()) {
            at_marked += 1;
            let place = || format!("at {:#x} {:?}", registers.pc, elf.names_at(registers.pc));
            let found = by_frame_pointer(&stepper, registers)?;
            if let Some(rule) = rule {
                let stated = by_rule(&stepper, registers, rule).with_context(place)?;
                assert_eq!(found, stated, "{}", place());
            }
            if let Some(pending) = pending {
                confirmed_by_calls += 1;
                assert_eq!(found.return_address, pending, "{}", place());
            }
        }
        stepper.step()?;
    }
    eprintln!("{executed} instructions, {at_marked} of them marked, {confirmed_by_calls} confirmed by calls");
    ensure!(at_marked >= INSTRUCTIONS, "only {at_marked} of {executed} instructions were at marked places");
    ensure!(
        confirmed_by_calls > CONFIRMED_BY_CALLS,
        "calls confirm only {confirmed_by_calls} of {at_marked}"
    );
    Ok(())
}

#[promise(HybridUnwinding, test_all)]
fn most_of_a_program_built_with_frame_pointers_is_walked_by_them() -> Result<()> {
    let program = workload::WORDS_FP.compiled()?;
    let (elf, marked) = (Elf::read(&program)?, FramePointerRanges::of(&program)?);
    let code: Vec<u64> = elf.functions().flat_map(|(start, size, _)| start..start + size).collect();
    let by_frame_pointer = code.iter().filter(|svma| marked.contains(**svma)).count();
    let share = by_frame_pointer as f64 / code.len() as f64;
    eprintln!("{by_frame_pointer} of {} bytes of functions are marked ({:.1}%)", code.len(), 100.0 * share);
    assert!(share >= 0.6, "{by_frame_pointer} of {}", code.len());
    Ok(())
}

/// Profiles a program for two seconds with these settings.
fn profiled(
    form: Form,
    settings: Settings,
    program: Program,
    arguments: &[&str],
) -> Result<(Verdict, Vec<String>)> {
    let command = program.command(&[&["2"], arguments].concat())?;
    let session = session::profile_by(form, settings, command)?;
    let events = || session.received.events_of(session.report.pid);
    let outcomes = events().filter_map(|event| event.sample.outcome().map(str::to_owned)).collect();
    Ok((Judge::default().verdict(events(), &Chain::Contiguous(session.report.chain.clone())), outcomes))
}

/// Profiles a ladder with tables switched off.
fn without_tables(program: Program) -> Result<(Verdict, Vec<String>)> {
    let settings = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::FramePointers]);
    profiled(Form::of_this_run()?, settings, program, &["30"])
}

/// `record` has no option for it.
#[promise(HybridUnwinding, test_all)]
fn where_the_code_is_trusted_it_corrects_unwind_data_that_contradicts_it() -> Result<()> {
    if !requirement::ebpf("trust in code")? {
        return Ok(());
    }
    let trusting = |what: &str| {
        let more = vec![format!("unwind: {{ trust: {what} }}")];
        let settings = Settings { more, ..Settings::at(SAMPLES_PER_SECOND) };
        profiled(Form::Service, settings, workload::MISSTATED, &[])
    };
    let (by_rows, _) = trusting("rows")?;
    eprintln!("rows: {by_rows}");
    assert!(by_rows.whole_chain_share() < 0.05, "the unwind data is right: {by_rows}");

    let (by_code, _) = trusting("code")?;
    eprintln!("code: {by_code}");
    assert!(by_code.right_share() > 0.98, "{by_code}");
    assert!(by_code.whole_chain_share() > 0.98, "{by_code}");
    Ok(())
}

#[promise(HybridUnwinding, test_all)]
fn with_tables_switched_off_only_ranges_that_keep_frame_pointers_are_walked() -> Result<()> {
    if !requirement::ebpf("tables switched off")? {
        return Ok(());
    }
    let (with_frame_pointers, _) = without_tables(workload::LADDER_FP)?;
    eprintln!("with frame pointers: {with_frame_pointers}");
    assert!(with_frame_pointers.whole_chain_share() > 0.95, "{with_frame_pointers}");

    let (without, outcomes) = without_tables(workload::LADDER)?;
    eprintln!("without: {without}");
    assert_eq!((without.right, without.whole_chain), (0, 0), "{without}");
    let refused = outcomes.iter().filter(|outcome| *outcome == "no_frame_pointer").count();
    assert!(
        refused * 100 >= without.user_events * 95,
        "{refused} of {} refused: {without}",
        without.user_events
    );
    Ok(())
}
