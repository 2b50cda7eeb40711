//! What walks need of CPython, in the form in which the programs have it.

use sidewinder_bpf::{
    CPythonLayout, PublishedCPython, PublishedRuntime, PublishedTlsLocation, cpython_group_form,
    cpython_instruction,
};
use sidewinder_process::FileId;
use sidewinder_vm_runtime::file_range::published_ranges;

use super::interpreter::Interpreter;
use super::layout::{Groups, InstructionForm, Layout};

pub(super) fn published(
    file: FileId,
    interpreter: &Interpreter,
    state: [Option<PublishedTlsLocation>; 2],
) -> PublishedRuntime {
    PublishedRuntime::CPython(PublishedCPython {
        file: file.0,
        loop_ranges: published_ranges(&interpreter.loops),
        unlinked_ranges: published_ranges(&interpreter.unlinked),
        state,
        cpython: published_layout(interpreter.layout),
    })
}

fn published_layout(layout: Layout) -> CPythonLayout {
    let (identity, identity_bytes) = layout.identity;
    let [name, path, lines] = layout.pointers();
    CPythonLayout {
        thread_id: layout.thread_id,
        cframe: layout.cframe.unwrap_or(0),
        current_frame: layout.current_frame,
        previous: layout.previous,
        code: layout.code,
        instruction: layout.instruction,
        owner: layout.owner,
        copy: layout.copies.map_or(0, |copies| copies.number),
        frame_bytes: layout.frame_bytes,
        bytecode: layout.bytecode,
        copies: layout.copies.map_or(0, |copies| copies.array),
        identity,
        identity_bytes,
        name,
        path,
        lines,
        group_form: match layout.groups {
            Groups::OneFrame => cpython_group_form::ONE_FRAME,
            Groups::LastIsEntry => cpython_group_form::LAST_IS_ENTRY,
            Groups::EndsAtShim => cpython_group_form::ENDS_AT_SHIM,
        } as u8,
        instruction_form: match layout.instruction_form {
            InstructionForm::ByteIndex => cpython_instruction::INDEX,
            InstructionForm::UnitIndex => cpython_instruction::INDEX_BY_2,
            InstructionForm::Pointer => cpython_instruction::POINTER,
        } as u8,
        identity_has_texts: layout.identity_has_texts.into(),
        reserved: [0; 5],
    }
}
