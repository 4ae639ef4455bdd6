//! State machines as data: a table of transitions (from, event, to).
//!
//! Each state machine has one file, with its states, its events and one [`Table`]. The current state is a [`State`],
//! whose field only [`State::apply`] assigns. The table serves three purposes:
//!
//! * the check of each transition, if debug assertions are on: in tests, in the simulator and under loom. Release
//!   builds only store the new state;
//! * the test of the table itself ([`Table::validate`]);
//! * the diagram in the documentation (`Table::diagram`), which a test compares with the page (`Table::assert_page`).
//!   Both need the feature `docs`.
//!
//! ```
//! use transitions::{Machine, State, Table};
//!
//! /// The states of a door.
//! #[derive(Clone, Copy, Debug, PartialEq, Eq)]
//! enum Door {
//!     Open,
//!     Closed,
//!     Locked,
//! }
//!
//! #[derive(Clone, Copy, Debug, PartialEq, Eq)]
//! enum Event {
//!     Push,
//!     Pull,
//!     Turn,
//! }
//!
//! impl Machine for Door {
//!     type Event = Event;
//!     const TABLE: Table<Door, Event> = Table {
//!         name: "door",
//!         initial: Door::Open,
//!         rows: &[
//!             (Door::Open, Event::Push, Door::Closed),
//!             (Door::Closed, Event::Pull, Door::Open),
//!             (Door::Closed, Event::Turn, Door::Locked),
//!             (Door::Locked, Event::Turn, Door::Closed),
//!         ],
//!     };
//! }
//!
//! let mut door = State::<Door>::new();
//! door.apply(Event::Push, Door::Closed);
//! assert_eq!(door.get(), Door::Closed);
//! // door.apply(Event::Push, Door::Open) panics in a debug build: the table has no such row.
//! ```
//!
//! A state with data is a separate enum. It returns its plain state ([`WithData`]), and [`replace`] assigns it.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::{fmt::Write as _, path::Path};

/// The plain states of a machine: an enum without data.
pub trait Machine: Copy + Eq + Debug + 'static {
    /// The events that change the state: an enum without data.
    type Event: Copy + Eq + Debug + 'static;
    /// All transitions.
    const TABLE: Table<Self, Self::Event>;
}

/// All transitions of a state machine.
#[derive(Clone, Copy, Debug)]
pub struct Table<S: 'static, E: 'static> {
    /// The name in messages and in the documentation.
    pub name: &'static str,
    /// The state of a new machine.
    pub initial: S,
    /// From, event, to. No two rows have the same state and event.
    pub rows: &'static [(S, E, S)],
}

impl<S: Copy + Eq + Debug, E: Copy + Eq + Debug> Table<S, E> {
    /// Returns the state that follows `from` after `event`; `None` if the event may not happen in that state.
    pub fn next(&self, from: S, event: E) -> Option<S> {
        let row = self.rows.iter().find(|row| (row.0, row.1) == (from, event))?;
        Some(row.2)
    }

    /// Checks a transition if debug assertions are on. In release builds the function is empty.
    ///
    /// # Panics
    /// If the table has no such row.
    #[inline]
    #[track_caller]
    pub fn assert(&self, from: S, event: E, to: S) {
        debug_assert!(
            self.next(from, event) == Some(to),
            "illegal move of a {}: {from:?}, {event:?}, {to:?}",
            self.name
        );
    }

    /// Checks the table: no two rows have the same state and event, and each state can be reached.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn validate(&self) -> Result<(), String> {
        for (index, (from, event, _)) in self.rows.iter().enumerate() {
            if self.rows[..index].iter().any(|row| (row.0, row.1) == (*from, *event)) {
                return Err(format!("{}: {from:?}, {event:?} has two rows", self.name));
            }
        }
        let mut reached = vec![self.initial];
        let mut next = 0;
        while let Some(&from) = reached.get(next) {
            for row in self.rows {
                if row.0 == from && !reached.contains(&row.2) {
                    reached.push(row.2);
                }
            }
            next += 1;
        }
        match self.rows.iter().find(|row| !reached.contains(&row.0)) {
            Some(row) => Err(format!("{}: {:?} cannot be reached", self.name, row.0)),
            None => Ok(()),
        }
    }
}

impl<S: Copy + Eq + Debug, E: Copy + Eq + Debug> Table<S, E> {
    /// Draws the table as text, with one arrow per row and the rows of a state together.
    pub fn diagram(&self) -> String {
        let names = |row: &(S, E, S)| [words(row.0), words(row.1), words(row.2)];
        let width =
            |column: usize| self.rows.iter().map(|row| names(row)[column].chars().count()).max().unwrap_or_default();
        let (from_width, event_width) = (width(0), width(1));
        let mut text = String::new();
        let mut states: Vec<S> = Vec::new();
        for row in self.rows {
            if !states.contains(&row.0) {
                states.push(row.0);
            }
        }
        for state in states {
            for (index, row) in self.rows.iter().filter(|row| row.0 == state).enumerate() {
                let [from, event, to] = names(row);
                let from = if index == 0 { from.as_str() } else { "" };
                let line = "─".repeat(event_width - event.chars().count());
                writeln!(text, "{from:from_width$} ── {event} {line}─▶ {to}").expect("a string takes all text");
            }
        }
        text
    }

    /// Checks that a page of the documentation contains [`diagram`](Self::diagram), in a code block after the line
    /// `<!-- transitions: NAME -->`. If the environment variable `WRITE_TRANSITIONS` is set, writes the diagram into
    /// the page.
    ///
    /// # Panics
    /// If the page has another diagram, or no place for one.
    pub fn assert_page(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let page = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let start = format!("<!-- transitions: {} -->\n```\n", self.name);
        let (before, rest) = page
            .split_once(&start)
            .unwrap_or_else(|| panic!("{}: no line {:?} with a code block", path.display(), start.trim_end()));
        let (old, after) = rest.split_once("```\n").expect("the code block ends");
        let new = self.diagram();
        if old == new {
            return;
        }
        assert!(
            std::env::var_os("WRITE_TRANSITIONS").is_some(),
            "{}: the diagram of the {} is out of date; WRITE_TRANSITIONS=1 writes this one:\n{new}",
            path.display(),
            self.name
        );
        std::fs::write(path, format!("{before}{start}{new}```\n{after}")).expect("the page can be written");
    }
}

/// The current state of a machine. Only [`apply`](Self::apply) changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<M>(M);

impl<M: Machine> State<M> {
    /// Returns the initial state.
    pub const fn new() -> Self {
        Self(M::TABLE.initial)
    }

    /// Returns the current state.
    #[inline]
    pub const fn get(self) -> M {
        self.0
    }

    /// Changes the state to `to` because of `event`.
    ///
    /// # Panics
    /// With debug assertions, if the table has no such row.
    #[inline]
    #[track_caller]
    pub fn apply(&mut self, event: M::Event, to: M) {
        M::TABLE.assert(self.0, event, to);
        self.0 = to;
    }
}

/// A state with data.
pub trait WithData {
    /// The plain states.
    type Plain: Machine;

    /// Returns the state without its data.
    fn plain(&self) -> Self::Plain;
}

/// Changes `state` to `to` because of `event`. Returns the previous state.
///
/// # Panics
/// With debug assertions, if the table has no such row.
#[inline]
#[track_caller]
pub fn replace<S: WithData>(state: &mut S, event: <S::Plain as Machine>::Event, to: S) -> S {
    let before = std::mem::replace(state, to);
    S::Plain::TABLE.assert(before.plain(), event, state.plain());
    before
}

impl<M: Machine> Default for State<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the words of a variant's name: `BodyPending` becomes "body pending".
fn words(name: impl Debug) -> String {
    let mut text = String::new();
    for (index, letter) in format!("{name:?}").chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Machine, State, Table};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lamp {
        Off,
        On,
        BurntOut,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        Switch,
        Fail,
    }

    const ROWS: &[(Lamp, Event, Lamp)] = &[
        (Lamp::Off, Event::Switch, Lamp::On),
        (Lamp::On, Event::Switch, Lamp::Off),
        (Lamp::On, Event::Fail, Lamp::BurntOut),
    ];

    impl Machine for Lamp {
        type Event = Event;
        const TABLE: Table<Lamp, Event> = Table { name: "lamp", initial: Lamp::Off, rows: ROWS };
    }

    #[test]
    fn apply_moves_along_the_rows() {
        let mut lamp = State::<Lamp>::default();
        lamp.apply(Event::Switch, Lamp::On);
        lamp.apply(Event::Fail, Lamp::BurntOut);
        assert_eq!(lamp.get(), Lamp::BurntOut);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal move of a lamp: Off, Fail, BurntOut")]
    fn apply_panics_when_the_table_has_no_such_row() {
        State::<Lamp>::new().apply(Event::Fail, Lamp::BurntOut);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal move of a lamp: Off, Switch, BurntOut")]
    fn apply_panics_when_the_event_leads_to_another_state() {
        State::<Lamp>::new().apply(Event::Switch, Lamp::BurntOut);
    }

    #[test]
    fn validate_finds_two_rows_for_one_event_and_a_state_without_a_way_to_it() {
        const TWICE: &[(Lamp, Event, Lamp)] =
            &[(Lamp::Off, Event::Switch, Lamp::On), (Lamp::Off, Event::Switch, Lamp::BurntOut)];
        const ISLAND: &[(Lamp, Event, Lamp)] = &[(Lamp::On, Event::Switch, Lamp::Off)];
        assert_eq!(Lamp::TABLE.validate(), Ok(()));
        let message = |rows| Table { rows, ..Lamp::TABLE }.validate().unwrap_err();
        assert_eq!(message(TWICE), "lamp: Off, Switch has two rows");
        assert_eq!(message(ISLAND), "lamp: On cannot be reached");
    }

    #[test]
    fn diagram_has_an_arrow_for_each_row() {
        let expected = "off ── switch ─▶ on\non  ── switch ─▶ off\n    ── fail ───▶ burnt out\n";
        assert_eq!(Lamp::TABLE.diagram(), expected);
    }
}
