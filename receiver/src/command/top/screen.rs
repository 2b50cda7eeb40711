//! The screen of `top`: draws the rows, and handles keys. Owner: the drawing thread of `top`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, mem};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row as TableRow, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use sidewinder_base::lock::lock;
use sidewinder_kind::{CounterRate, Kind, SampledCounter};
use sidewinder_render::{
    FunctionOrder, InlinedFunctions, NameStyle, OutcomeCount, Profile, SampleType, fitted,
};
use sidewinder_report::collect::SLICE;
use sidewinder_server::live::{LiveFeed, LiveFeeds};

use super::keys::{key_help, key_line};
use super::rows::{SortOrder, TopRow, View, outcomes_line, rows};
use crate::cli::TopArgs;

/// The selectable time ranges in seconds.
const TIME_RANGES: [u32; 4] = [5, 10, 30, 60];
/// The longest of them.
pub(super) const MAX_TIME_RANGE: Duration = Duration::from_secs(60);
/// How often the screen is redrawn.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);
/// How often the stop flag is checked.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// `100.00%` and an arrow.
const SHARE_COLUMNS: usize = 8;
/// Names have so many columns if there is room for them, so that columns don't move whenever rows come and go.
const NAME_COLUMNS_MIN: usize = 40;

/// From this share on, in percent, a function is hot; from the other one on, it is worth a look. As in perf.
const HOT_PERCENT: f64 = 5.0;
const WARM_PERCENT: f64 = 0.5;

/// The state of the screen.
pub(super) struct Screen {
    title: String,
    kind: Kind,
    seconds: u32,
    /// What is shown, and how the user got there: never empty.
    views: Vec<View>,
    has_colour: bool,
    sort_order: SortOrder,
    filter: String,
    names: NameStyle,
    inlined: InlinedFunctions,
    /// The most rows that are shown.
    rows_max: usize,
    /// Whether the keys are shown.
    is_helping: bool,
    /// Whether the filter is being typed.
    is_editing_filter: bool,
    is_paused: bool,
    profile: Option<Profile>,
    /// Which inlined functions the profile has: others are requested from the next one.
    shown_inlined: InlinedFunctions,
    outcomes: Vec<OutcomeCount>,
    rows: Vec<TopRow>,
    table: TableState,
}

/// What to do after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScreenAction {
    Continue,
    Quit,
}

impl Screen {
    pub(super) fn new(title: String, kind: Kind, args: &TopArgs, has_colour: bool) -> Self {
        let order = args.table.order().unwrap_or(FunctionOrder::of(&SampleType::from_kind(kind)));
        Self {
            title,
            kind,
            seconds: args.seconds,
            views: vec![View::Functions(None)],
            has_colour,
            sort_order: order.into(),
            filter: String::new(),
            names: args.names.into(),
            inlined: args.table.inlined(),
            rows_max: args.table.rows().unwrap_or(usize::MAX),
            is_helping: false,
            is_editing_filter: false,
            is_paused: false,
            profile: None,
            shown_inlined: args.table.inlined(),
            outcomes: Vec::new(),
            rows: Vec::new(),
            table: TableState::default(),
        }
    }

    /// Draws until the user quits or `stop` is set, and restores the terminal.
    pub(super) fn run(
        &mut self,
        feeds: &LiveFeeds,
        outcomes: &Mutex<Vec<OutcomeCount>>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let mut terminal = ratatui::try_init()?;
        let ended = self.draw_until_quit(&mut terminal, feeds, outcomes, stop);
        ratatui::try_restore().and(ended)
    }

    fn draw_until_quit(
        &mut self,
        terminal: &mut DefaultTerminal,
        feeds: &LiveFeeds,
        outcomes: &Mutex<Vec<OutcomeCount>>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if Instant::now() >= due {
                due = Instant::now() + DRAW_INTERVAL;
                self.refresh(feeds, outcomes);
                terminal.draw(|frame| self.draw(frame))?;
            }
            if !event::poll(STOP_CHECK_INTERVAL.min(due.saturating_duration_since(Instant::now())))? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if self.handle_key(key) == ScreenAction::Quit {
                        return Ok(());
                    }
                }
                Event::Resize(..) => {}
                _ => continue,
            }
            terminal.draw(|frame| self.draw(frame))?;
        }
        Ok(())
    }

    /// Loads the newest data, unless paused.
    fn refresh(&mut self, feeds: &LiveFeeds, outcomes: &Mutex<Vec<OutcomeCount>>) {
        if self.is_paused {
            return;
        }
        self.outcomes = lock(outcomes).clone();
        // The window of the one kind that is sampled.
        let mut window = feeds.iter().next().map(LiveFeed::window);
        if let Some(window) = window.as_deref_mut().and_then(Option::as_mut) {
            let now = window.slices();
            let slices =
                u32::try_from(Duration::from_secs(self.seconds.into()).as_millis() / SLICE.as_millis());
            let from = now.saturating_sub(slices.unwrap_or(u32::MAX));
            let mut profile = window.profile(from..now + 1, Vec::new());
            profile.fold(self.inlined);
            self.profile = Some(profile);
            self.shown_inlined = self.inlined;
        }
        self.sort();
    }

    fn view(&self) -> &View {
        self.views.last().unwrap_or(&View::Processes)
    }

    /// Shows something else, with all of its rows.
    fn show(&mut self, change: impl FnOnce(&mut Vec<View>)) {
        change(&mut self.views);
        self.filter.clear();
        self.table.select(None);
    }

    fn sort(&mut self) {
        let selected = self.table.selected().and_then(|at| self.rows.get(at)).map(|row| row.name.clone());
        if let Some(profile) = &self.profile {
            self.rows = rows(profile, self.view(), self.sort_order, &self.filter, self.names);
            self.rows.truncate(self.rows_max);
        }
        // The selected row stays selected, wherever it has moved.
        let index = selected.and_then(|name| self.rows.iter().position(|row| row.name == name));
        self.table.select(index.or_else(|| self.table.selected().filter(|at| *at < self.rows.len())));
    }

    fn handle_key(&mut self, key: KeyEvent) -> ScreenAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { ScreenAction::Quit } else { ScreenAction::Continue };
        }
        if mem::take(&mut self.is_editing_filter) {
            match key.code {
                KeyCode::Enter => return ScreenAction::Continue,
                KeyCode::Esc => self.filter.clear(),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(character) => self.filter.push(character),
                _ => {}
            }
            self.is_editing_filter = key.code != KeyCode::Esc;
            self.table.select(None);
            self.sort();
            return ScreenAction::Continue;
        }
        if mem::take(&mut self.is_helping) {
            return ScreenAction::Continue;
        }
        let last = self.rows.len().saturating_sub(1);
        let at = self.table.selected();
        match key.code {
            KeyCode::Char('q') => return ScreenAction::Quit,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left if self.views.len() > 1 => {
                self.show(|views| drop(views.pop()));
            }
            KeyCode::Esc => return ScreenAction::Quit,
            KeyCode::Enter | KeyCode::Right => {
                let row = self.rows.get(at.unwrap_or_default());
                if let Some(details) = row.and_then(|row| self.view().details(row)) {
                    self.show(|views| views.push(details));
                }
            }
            KeyCode::Tab => {
                let next =
                    if *self.view() == View::Processes { View::Functions(None) } else { View::Processes };
                self.show(|views| *views = vec![next]);
            }
            KeyCode::Char('s') => self.sort_order = SortOrder::SelfCount,
            KeyCode::Char('t') => self.sort_order = SortOrder::TotalCount,
            KeyCode::Char('n') => self.sort_order = SortOrder::Name,
            KeyCode::Char('f') => {
                self.names = if self.names == NameStyle::Short { NameStyle::Full } else { NameStyle::Short };
            }
            KeyCode::Char('i') => {
                self.inlined = match self.inlined {
                    InlinedFunctions::All => InlinedFunctions::Own,
                    InlinedFunctions::Own => InlinedFunctions::None,
                    InlinedFunctions::None => InlinedFunctions::All,
                };
            }
            KeyCode::Char('?') => self.is_helping = true,
            KeyCode::Char('/') => self.is_editing_filter = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('+') => {
                let longer = TIME_RANGES.into_iter().find(|span| *span > self.seconds);
                self.seconds = longer.unwrap_or(self.seconds);
            }
            KeyCode::Char('-') => {
                let shorter = TIME_RANGES.into_iter().rev().find(|span| *span < self.seconds);
                self.seconds = shorter.unwrap_or(self.seconds);
            }
            KeyCode::Down => self.table.select(Some(at.map_or(0, |at| at + 1).min(last))),
            KeyCode::Up => self.table.select(at.map(|at| at.saturating_sub(1))),
            KeyCode::PageDown => self.table.select(Some(at.map_or(0, |at| at + 10).min(last))),
            KeyCode::PageUp => self.table.select(at.map(|at| at.saturating_sub(10))),
            KeyCode::Home => self.table.select(None),
            KeyCode::End => self.table.select(Some(last)),
            _ => {}
        }
        self.sort();
        ScreenAction::Continue
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let lines = Constraint::Length(1);
        let counts_text = self.counts(frame.area().width.into());
        let counts_lines = Constraint::Length(counts_text.len().try_into().unwrap_or(1));
        let view_title = self.view().title();
        let view_lines = Constraint::Length(u16::from(view_title.is_some()));
        let [title, counts, view, body, footer] =
            Layout::vertical([lines, counts_lines, view_lines, Constraint::Fill(1), lines])
                .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let inlined = match self.shown_inlined {
            InlinedFunctions::All => "",
            InlinedFunctions::Own => "  without inlined functions of standard libraries",
            InlinedFunctions::None => "  without inlined functions",
        };
        let state = format!("{}{inlined}", if self.is_paused { "  paused" } else { "" });
        let sampled = match self.kind {
            Kind::OffCpu => "off-CPU time".to_owned(),
            Kind::LockContentions => "waits for locks".to_owned(),
            Kind::LockDelay => "time of waits for locks".to_owned(),
            Kind::LockWakers => "time of waits for locks, by waker".to_owned(),
            Kind::Wall { samples_per_second } => format!("wall time, {samples_per_second} Hz"),
            Kind::Counter(SampledCounter { counter, rate: CounterRate::Period(period) }) => {
                format!("{counter}, period {period}")
            }
            Kind::Counter(SampledCounter { counter, rate: CounterRate::Frequency(hz) }) => {
                format!("{counter}, {hz} Hz")
            }
            Kind::Probe(probe) => probe.name().to_owned(),
            Kind::Cpu { samples_per_second } | Kind::Aggregated { samples_per_second } => {
                format!("{samples_per_second} Hz")
            }
        };
        let description = format!("  {}, {sampled}, the last {} s", self.title, self.seconds);
        frame.render_widget(
            Line::from(vec![
                Span::styled("sidewinder top", bold),
                description.into(),
                Span::styled(state, bold),
            ]),
            title,
        );
        frame.render_widget(Text::from(counts_text), counts);
        if let Some(text) = view_title {
            frame.render_widget(Line::from(fitted(&text, view.width.into())).style(bold), view);
        }
        let total = self.profile.as_ref().map_or(0, Profile::total_count);
        let table = self.table(total, bold, body.width.into());
        if self.is_helping {
            frame.render_widget(key_help(), body);
        } else {
            frame.render_stateful_widget(table, body, &mut self.table);
        }
        let keys = key_line(self.view(), self.views.len() > 1);
        let footer_text = match (self.is_editing_filter, &*self.filter) {
            (true, filter) => format!("filter: {filter}_   Enter keeps it, Esc clears it"),
            _ if self.is_helping => "any key closes this".to_owned(),
            (false, "") => keys.to_owned(),
            (false, filter) => format!("filter: {filter}   Esc clears it   {keys}"),
        };
        frame.render_widget(Line::from(footer_text).style(Style::new().add_modifier(Modifier::DIM)), footer);
    }

    /// What was counted, and how complete that is, in one line if it has so many columns, else in two.
    fn counts(&self, columns: usize) -> Vec<Line<'static>> {
        let Some(profile) = &self.profile else { return vec!["waiting for the first samples".into()] };
        let total = profile.total_count();
        let per_second = total as f64 / profile.duration.as_secs_f64().max(0.1);
        let counted = match self.kind {
            // The sum over all threads.
            Kind::OffCpu => {
                format!("{:.3} s off the CPUs, {:.2} s a second", total as f64 / 1e9, per_second / 1e9)
            }
            Kind::Wall { .. } => {
                format!("{:.3} s of wall time, {:.2} s a second", total as f64 / 1e9, per_second / 1e9)
            }
            Kind::Counter(_) | Kind::Probe(_) => {
                let counted = self.kind.descriptor().value_type.display;
                format!("{total} {counted}, {per_second:.0} a second")
            }
            Kind::LockContentions => format!("{total} waits for locks, {per_second:.0} a second"),
            Kind::LockDelay | Kind::LockWakers => {
                format!("{:.3} s of waits for locks, {:.2} s a second", total as f64 / 1e9, per_second / 1e9)
            }
            Kind::Cpu { .. } | Kind::Aggregated { .. } => {
                format!("{total} samples, {per_second:.0} a second")
            }
        };
        let outcomes = outcomes_line(&self.outcomes);
        if counted.len() + outcomes.len() + 2 <= columns {
            return vec![format!("{counted}; {outcomes}").into()];
        }
        vec![counted.into(), outcomes.into()]
    }

    /// The table in so many columns.
    fn table(&self, total: u64, bold: Style, columns: usize) -> Table<'static> {
        let share = |events: u64| {
            let percent = 100.0 * events as f64 / total.max(1) as f64;
            let colour = match percent {
                HOT_PERCENT.. => Some(Color::Red),
                WARM_PERCENT.. => Some(Color::Green),
                _ => None,
            };
            let style = colour.filter(|_| self.has_colour).map(|colour| Style::new().fg(colour));
            Cell::from(format!("{percent:6.2}%")).style(style.unwrap_or_default())
        };
        let longest = self.rows.iter().map(|row| row.owner.chars().count()).max().unwrap_or_default();
        let owner_columns = longest.clamp(6, (columns / 5).max(6));
        let room = columns.saturating_sub(2 * (SHARE_COLUMNS + 1) + owner_columns + 1);
        // The owner is beside the names, and not at the far end of a wide terminal.
        let longest = self.rows.iter().map(|row| Span::raw(&*row.name).width()).max().unwrap_or_default();
        let name_columns = longest.max(NAME_COLUMNS_MIN).min(room);
        let row = |row: &TopRow| {
            TableRow::new([
                share(row.self_count),
                share(row.total_count),
                fitted(&row.name, name_columns).into(),
                fitted(&row.owner, owner_columns).into(),
            ])
        };
        let mark =
            |order, name: &str| if self.sort_order == order { format!("{name}↓") } else { name.to_owned() };
        let (name, owner) = match self.view() {
            View::Functions(_) => ("function", "binary"),
            View::Callers(..) => ("caller", "binary"),
            View::Processes => ("process", "pid"),
        };
        let number_header = |order, name| format!("{:>7}", mark(order, name));
        let head = [
            number_header(SortOrder::SelfCount, "self"),
            number_header(SortOrder::TotalCount, "total"),
            mark(SortOrder::Name, name),
            owner.to_owned(),
        ];
        let widths = [SHARE_COLUMNS, SHARE_COLUMNS, name_columns, owner_columns]
            .map(|columns| Constraint::Length(columns.try_into().unwrap_or(u16::MAX)));
        Table::new(self.rows.iter().map(row), widths)
            .header(TableRow::new(head).style(bold))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
    }
}

#[cfg(test)]
mod tests;
