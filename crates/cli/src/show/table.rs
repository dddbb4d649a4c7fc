//! Tables that fit: the columns that may give way do, longest first.

use super::{Screen, Style, clean, cut};

/// The least that a column which gives way keeps.
const LEAST: usize = 8;
/// Between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    pub(crate) head: &'a str,
    /// May be cut when there is no room.
    pub(crate) gives_way: bool,
}

pub(crate) fn fixed(head: &str) -> Column<'_> {
    let gives_way = false;
    Column { head, gives_way }
}

pub(crate) fn flexible(head: &str) -> Column<'_> {
    let gives_way = true;
    Column { head, gives_way }
}

/// What stands in a row under a column.
pub(crate) type Cell = (Style, String);

pub(crate) fn plain(text: impl Into<String>) -> Cell {
    (Style::Plain, text.into())
}

/// Shows rows under their heads; nothing of a column that is empty in all rows.
pub(crate) fn show(screen: &mut Screen, columns: &[Column<'_>], rows: &[Vec<Cell>]) {
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|(style, text)| (*style, clean(text)))
                .collect()
        })
        .collect();
    let longest = |at: usize| rows.iter().map(|row| row[at].1.chars().count()).max();
    let mut widths: Vec<(usize, bool)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let width = match longest(at).unwrap_or(0) {
            0 => 0,
            longest => longest.max(clean(column.head).chars().count()),
        };
        widths.push((width, column.gives_way));
    }
    if let Some(width) = screen.width {
        shrink(&mut widths, width);
    }
    let head: Vec<Cell> = columns
        .iter()
        .map(|column| (Style::Head, clean(column.head)))
        .collect();
    for row in std::iter::once(&head).chain(&rows) {
        let line = line(screen, row, &widths);
        screen.line(&line);
    }
}

fn line(screen: &Screen, row: &[Cell], widths: &[(usize, bool)]) -> String {
    let mut line = String::new();
    let mut pending = 0;
    for ((style, text), (width, _)) in row.iter().zip(widths) {
        if *width == 0 {
            continue;
        }
        let text = cut(text, *width);
        if text.is_empty() {
            pending += width + GAP;
            continue;
        }
        line.push_str(&" ".repeat(pending));
        line.push_str(&screen.paint(*style, &text));
        pending = width - text.chars().count() + GAP;
    }
    line
}

/// Takes from the widest column that gives way until all fit; when none can give more, the last of
/// them goes.
fn shrink(widths: &mut [(usize, bool)], room: usize) {
    let whole = widths.to_vec();
    let mut kept = widths.len();
    loop {
        if narrow(widths, room) {
            return;
        }
        let last = whole[..kept]
            .iter()
            .rposition(|(width, gives_way)| *gives_way && *width > 0);
        let Some(last) = last.filter(|last| *last > 0) else {
            return;
        };
        kept = last;
        widths.copy_from_slice(&whole);
        for (at, width) in widths.iter_mut().enumerate() {
            if at >= last && width.1 {
                width.0 = 0;
            }
        }
    }
}

/// Takes from the widest column that gives way. Returns whether all fit.
fn narrow(widths: &mut [(usize, bool)], room: usize) -> bool {
    loop {
        let shown = widths.iter().filter(|(width, _)| *width > 0);
        let used: usize = shown.map(|(width, _)| width + GAP).sum();
        if used <= room + GAP {
            return true;
        }
        let widest = widths
            .iter_mut()
            .filter(|(width, gives_way)| *gives_way && *width > LEAST)
            .max_by_key(|(width, _)| *width);
        match widest {
            Some((width, _)) => *width -= 1,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_column_that_may_gives_way() {
        let mut widths = [(36, false), (30, true), (0, true), (10, true)];
        shrink(&mut widths, 70);
        assert_eq!(widths.map(|(width, _)| width), [36, 20, 0, 10]);
    }

    #[test]
    fn the_last_column_goes_when_there_is_no_room_for_it() {
        let mut widths = [(36, false), (30, true), (4, false), (10, true)];
        shrink(&mut widths, 60);
        assert_eq!(widths.map(|(width, _)| width), [36, 16, 4, 0]);
        let mut widths = [(36, false), (30, true), (4, false), (10, true)];
        shrink(&mut widths, 44);
        assert_eq!(widths.map(|(width, _)| width), [36, 0, 4, 0]);
    }
}
