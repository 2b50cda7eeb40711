//! Readers outside of the process find the variable by name: the program exports it.

fn main() {
    custom_labels::build::emit_build_instructions();
}
