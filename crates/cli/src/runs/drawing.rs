//! A tree of runs, drawn in the columns that there are.

use roundel::{RunId, RunState, Timestamp};

use super::list::workflow;
use super::style;
use crate::show::{Screen, Style, clean, cut, time};
use roundel_server::view::{Node, failure};

/// Columns of a page that is not a terminal.
const WIDE: usize = 100;
/// The least that is left for names.
const LEAST: usize = 24;
/// The least of an id that is shown: the part that says when.
const ID: usize = 13;

pub(super) struct Drawing<'a> {
    /// The first is the top.
    pub(super) nodes: &'a [Node],
    /// Marked: who was asked for.
    pub(super) asked: RunId,
    pub(super) now: Timestamp,
}

/// A line: what stands before it, and a run, or a remark.
enum Line<'a> {
    Run(String, &'a Node, String),
    Remark(String, Style, String),
}

pub(super) fn draw(screen: &mut Screen, drawing: &Drawing<'_>) {
    let mut lines = Vec::new();
    let top = label(&drawing.nodes[0], true);
    drawing.lines((String::new(), String::new()), (0, top), &mut lines);
    let digits = drawing.digits();
    let cells = |node: &Node| drawing.cells(node, digits);
    let mut widths = [0; 4];
    let mut name = 0;
    for line in &lines {
        let Line::Run(front, node, text) = line else {
            continue;
        };
        name = name.max(front.chars().count() + clean(text).chars().count());
        for (width, (_, cell)) in widths.iter_mut().zip(cells(node)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let width = screen.width.unwrap_or(WIDE);
    let taken = |widths: &[usize]| -> usize {
        let shown = widths.iter().filter(|width| **width > 0);
        shown.map(|width| width + 2).sum()
    };
    // What can be done without goes first: when it began, its id, how long it took.
    for cell in [1, 3, 2] {
        if taken(&widths) + name.min(LEAST) > width {
            widths[cell] = 0;
        }
    }
    let rest = taken(&widths);
    let name = name.min(width.saturating_sub(rest).max(LEAST));
    for line in lines {
        match line {
            Line::Remark(front, style, text) => {
                let text = cut(&clean(&text), width.saturating_sub(front.chars().count()));
                let front = screen.paint(Style::Dim, &front);
                let text = screen.paint(style, &text);
                screen.line(&format!("{front}{text}"));
            }
            Line::Run(front, node, text) => {
                let room = name.saturating_sub(front.chars().count());
                let text = cut(&clean(&text), room.max(4));
                let pad = room.saturating_sub(text.chars().count());
                let of = if node.run.row.id == drawing.asked {
                    Style::Head
                } else {
                    Style::Plain
                };
                let front = screen.paint(Style::Dim, &front);
                let mut line = format!("{front}{}{}", screen.paint(of, &text), " ".repeat(pad));
                let shown = widths.iter().zip(cells(node));
                for (width, (style, cell)) in shown.filter(|(width, _)| **width > 0) {
                    let pad = " ".repeat(width - cell.chars().count());
                    line.push_str("  ");
                    line.push_str(&screen.paint(style, &cell));
                    line.push_str(&pad);
                }
                screen.line(line.trim_end());
            }
        }
    }
}

/// What ran; with its key, if it is the top.
fn label(node: &Node, top: bool) -> String {
    let name = workflow(&node.run);
    match (&node.run.row.key, top) {
        (Some(key), true) => format!("{name} {key}"),
        _ => name,
    }
}

impl Drawing<'_> {
    /// Adds a run and all below it. `front` stands before the run itself, and before what follows.
    fn lines<'a>(
        &'a self,
        (front, under): (String, String),
        (at, text): (usize, String),
        lines: &mut Vec<Line<'a>>,
    ) {
        let node = &self.nodes[at];
        lines.push(Line::Run(front, node, text));
        let groups = self.groups(node);
        let last = groups.len();
        if let Some((style, remark)) = self.remark(node) {
            let bar = if last > 0 { "│  " } else { "   " };
            lines.push(Line::Remark(format!("{under}{bar}"), style, remark));
        }
        for (number, (by, runs)) in groups.into_iter().enumerate() {
            let ends = number + 1 == last && node.hidden == 0;
            let (fork, bar) = fork(ends);
            let (fork, bar) = (format!("{under}{fork}"), format!("{under}{bar}"));
            let by = by.unwrap_or("a call");
            if let [one] = runs[..] {
                let text = label(&self.nodes[one], false);
                let (kind, name) = by.split_once(' ').unwrap_or((by, ""));
                let text = match name.trim_matches('`') == text {
                    true => format!("{kind} {text}"),
                    false => format!("{by}: {text}"),
                };
                self.lines((fork, bar), (one, text), lines);
                continue;
            }
            lines.push(Line::Remark(
                fork,
                Style::Plain,
                format!("{by}: {} runs", runs.len()),
            ));
            let inner = runs.len();
            for (place, run) in runs.into_iter().enumerate() {
                let (fork, under) = self::fork(place + 1 == inner);
                let text = label(&self.nodes[run], false);
                let fronts = (format!("{bar}{fork}"), format!("{bar}{under}"));
                self.lines(fronts, (run, text), lines);
            }
        }
        if node.hidden > 0 {
            let text = format!("… {} more, and what is below them", node.hidden);
            lines.push(Line::Remark(format!("{under}└─ "), Style::Dim, text));
        }
    }

    /// The runs below, by what set them off.
    fn groups(&self, node: &Node) -> Vec<(Option<&str>, Vec<usize>)> {
        let mut groups: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
        let by = |at: usize| {
            let parent = self.nodes[at].run.row.parent;
            parent.map(|parent| (parent.execution, parent.call))
        };
        for at in &node.below {
            match groups.last_mut() {
                Some((_, runs)) if by(runs[0]) == by(*at) => runs.push(*at),
                _ => groups.push((self.nodes[*at].by.as_deref(), vec![*at])),
            }
        }
        groups
    }

    /// What a state alone does not say.
    fn remark(&self, node: &Node) -> Option<(Style, String)> {
        let row = &node.run.row;
        let begun = self.nodes[0].run.row.created_at;
        if let Some(rollback) = &node.rollback {
            let from = time::span(rollback.from.since(begun));
            let why = rollback.why.as_ref().map(|why| format!(": {why}"));
            let why = why.unwrap_or_default();
            return Some(match row.state.has_ended() {
                true => {
                    let took = time::span(row.changed_at.since(rollback.from));
                    let stuck =
                        failure(&node.run).filter(|_| row.state == RunState::RollbackFailed);
                    match stuck {
                        Some(stuck) => (Style::Bad, format!("from +{from}: {stuck}")),
                        None => (Style::Dim, format!("undone from +{from}, in {took}{why}")),
                    }
                }
                false => (Style::Busy, format!("undoing since +{from}{why}")),
            });
        }
        let failed = matches!(
            row.state,
            RunState::Failed | RunState::Parked | RunState::Cancelled
        );
        let why = failure(&node.run).filter(|_| failed)?;
        Some((style(row.state), why))
    }

    /// State, when it began, how long it took, and the beginning of its id.
    fn cells(&self, node: &Node, digits: usize) -> [(Style, String); 4] {
        let row = &node.run.row;
        let begun = row.created_at.since(self.nodes[0].run.row.created_at);
        let took = match row.state.has_ended() {
            true => (Style::Dim, time::span(row.changed_at.since(row.created_at))),
            false => (Style::Busy, time::span(self.now.since(row.created_at))),
        };
        [
            (style(row.state), row.state.as_str().to_owned()),
            (Style::Dim, format!("+{}", time::span(begun))),
            took,
            (
                Style::Dim,
                row.id.to_string().chars().take(digits).collect(),
            ),
        ]
    }

    /// How much of the ids tells them apart.
    fn digits(&self) -> usize {
        let mut ids: Vec<String> = self
            .nodes
            .iter()
            .map(|node| node.run.row.id.to_string())
            .collect();
        ids.sort_unstable();
        let same = |pair: &[String]| {
            let (one, two) = (pair[0].chars(), pair[1].chars());
            one.zip(two).take_while(|(a, b)| a == b).count()
        };
        let longest = ids.windows(2).map(|pair| same(pair) + 1).max();
        longest.unwrap_or(0).max(ID)
    }
}

/// What stands before a branch, and under it.
pub(super) fn fork(last: bool) -> (&'static str, &'static str) {
    match last {
        true => ("└─ ", "   "),
        false => ("├─ ", "│  "),
    }
}
