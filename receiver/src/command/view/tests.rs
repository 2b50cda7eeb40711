//! What the command writes of a file is what the file holds.

use std::path::Path;

use clap::Parser as _;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::decode::decode_profiles_data;
use sidewinder_otlp::{ReportBuilder, ReportOptions, conformance};
use sidewinder_profile::{Dictionary, FrameType, Line, LinkIndex, Location};

use crate::cli::{Cli, Command};

/// A stack with a frame of each type, that of the kernel first, as a stack of Java has them.
fn report_of_all_types() -> Vec<u8> {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let of_kernel = |frame_type: &&FrameType| **frame_type == FrameType::Kernel;
    let (kernel, user): (Vec<&FrameType>, _) = FrameType::ALL.iter().partition(of_kernel);
    let mut stack = Vec::new();
    for frame_type in kernel.into_iter().chain(user) {
        let name = format!("function of {}", frame_type.as_str());
        let function = dictionary.add_function_named(&name);
        let lines = [Line { function, line: 3, column: 7 }];
        let frame = Location { frame_type: *frame_type, lines: &lines, ..Location::default() };
        stack.push(dictionary.add_location(&frame));
    }
    let identity = SampleIdentity {
        resource: dictionary.add_attributes([]),
        profile_type: builder.kind(Kind::Cpu { samples_per_second: 100 }),
        stack: dictionary.add_stack(&stack),
        attributes: SampleAttributes::default().add_to(&mut dictionary),
        link: LinkIndex::default(),
    };
    builder.event(&identity, 1_790_000_000_000_000_000, 1);
    let interval = 1_790_000_000_000_000_000..1_790_000_001_000_000_000;
    builder.finish(&mut dictionary, interval).unwrap().as_bytes().to_vec()
}

fn view(arguments: &[&Path]) {
    let line = ["sidewinder", "view"].map(Path::new).into_iter().chain(arguments.iter().copied());
    let Some(Command::View(args)) = Cli::parse_from(line).command else { panic!("not a view") };
    super::view(&args).unwrap();
}

fn frame_types(path: &Path) -> Vec<(String, FrameType)> {
    let profiles = decode_profiles_data(&std::fs::read(path).unwrap()).unwrap();
    let stack = profiles[0].samples[0].stack.iter();
    stack.map(|frame| (frame.function().unwrap().to_owned(), frame.frame_type().unwrap())).collect()
}

#[test]
fn frames_keep_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let [given, written] = ["given.otlp", "written.otlp"].map(|name| folder.path().join(name));
    std::fs::write(&given, report_of_all_types()).unwrap();
    view(&[Path::new("-o"), &written, &given]);
    assert_eq!(conformance::check(&std::fs::read(&written).unwrap()), []);
    let types = frame_types(&written);
    assert_eq!(types, frame_types(&given));
    assert_eq!(types.len(), FrameType::ALL.len());
    let of_java = ("function of jvm".to_owned(), FrameType::Jvm);
    assert!(types.contains(&of_java), "{types:?}");
}
