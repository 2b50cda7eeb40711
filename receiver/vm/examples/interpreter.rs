//! Prints what files say of the interpreter that they contain.
#![expect(clippy::unwrap_used, reason = "an example")]

use sidewinder_vm::cpython::Interpreter;

fn main() {
    for path in std::env::args().skip(1) {
        let start = std::time::Instant::now();
        let read = Interpreter::read(&std::fs::File::open(&path).unwrap()).unwrap();
        println!("{path}: {:?}", start.elapsed());
        if let Some(Interpreter { version, loops, layout, .. }) = read {
            println!("  CPython {version}: loop {loops:x?}\n  {layout:?}");
        }
    }
}
