//! What the screen shows, without a terminal.

use clap::Parser as _;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::rows::tests::profile_of;
use super::*;
use crate::cli::{Cli, Command};

const CPU: Kind = Kind::Cpu { samples_per_second: 97 };

fn screen(kind: Kind, options: &[&str]) -> Screen {
    let Some(Command::Top(args)) = Cli::parse_from([&["sidewinder", "top"], options].concat()).command else {
        panic!("another command")
    };
    let mut screen = Screen::new("all processes".to_owned(), kind, &args, false);
    screen.profile = Some(profile_of("/usr/bin/app"));
    screen.sort();
    screen
}

fn shown(screen: &mut Screen, columns: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, 24)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let lines = terminal.backend().to_string();
    lines.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
}

fn press(screen: &mut Screen, key: char) {
    screen.handle_key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
}

/// The names of functions, from the first row on.
fn names(screen: &mut Screen) -> Vec<String> {
    let lines = shown(screen, 100);
    let rows = lines.iter().skip_while(|line| !line.contains("function")).skip(1);
    rows.filter_map(|row| row.split_whitespace().nth(2).map(str::to_owned)).take(screen.rows.len()).collect()
}

#[test]
fn the_binary_is_beside_the_names_however_wide_the_terminal_is() {
    for columns in [100, 200] {
        let lines = shown(&mut screen(CPU, &[]), columns);
        let row = lines.iter().find(|line| line.contains(" B ")).unwrap();
        assert!(row.find("app").is_some_and(|column| column < 64), "{columns} columns: {row}");
    }
}

#[test]
fn waits_are_sorted_by_total_and_everything_as_requested() {
    assert_eq!(names(&mut screen(CPU, &[])), ["B", "a\\u{7}"]);
    assert_eq!(names(&mut screen(Kind::OffCpu, &[])), ["a\\u{7}", "B"]);
    assert_eq!(names(&mut screen(Kind::OffCpu, &["--sort", "self"])), ["B", "a\\u{7}"]);
    assert_eq!(names(&mut screen(CPU, &["--sort", "total", "--rows", "1"])), ["a\\u{7}"]);
}

#[test]
fn a_question_mark_shows_every_key_and_the_next_key_closes_them() {
    let mut screen = screen(CPU, &[]);
    let before = shown(&mut screen, 80);
    assert!(before.last().is_some_and(|line| line.contains("? keys")), "{before:?}");
    press(&mut screen, '?');
    let help = shown(&mut screen, 80).join("\n");
    for key in ["q, Ctrl-C", "Tab", "s, t, n", "/", "f", "i", "+, -", "p, Space", "?"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(key)), "{key} is not in\n{help}");
    }
    assert!(!help.contains(" B "), "instead of the rows");
    press(&mut screen, 'n');
    assert_eq!(shown(&mut screen, 80), before, "the key did nothing else");
}

#[test]
fn inlined_functions_are_chosen_with_a_key() {
    let mut screen = screen(CPU, &[]);
    for expected in [InlinedFunctions::Own, InlinedFunctions::None, InlinedFunctions::All] {
        press(&mut screen, 'i');
        assert_eq!(screen.inlined, expected);
    }
}
