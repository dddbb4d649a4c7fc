//! Tables that fit: the columns that may give way do, longest first.

use super::{Screen, Style, clean, cut};

/// The least that a column which gives way keeps.
const LEAST: usize = 8;
/// Between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// May be cut when there is no room.
    pub(crate) gives_way: bool,
}

pub(crate) fn fixed(head: &'static str) -> Column {
    let gives_way = false;
    Column { head, gives_way }
}

pub(crate) fn flexible(head: &'static str) -> Column {
    let gives_way = true;
    Column { head, gives_way }
}

/// What stands in a row under a column.
pub(crate) type Cell = (Style, String);

pub(crate) fn plain(text: impl Into<String>) -> Cell {
    (Style::Plain, text.into())
}

/// Shows rows under their heads; nothing of a column that is empty in all rows.
pub(crate) fn show(screen: &mut Screen, columns: &[Column], rows: &[Vec<Cell>]) {
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
            longest => longest.max(column.head.len()),
        };
        widths.push((width, column.gives_way));
    }
    if let Some(width) = screen.width {
        shrink(&mut widths, width);
    }
    let head: Vec<Cell> = columns
        .iter()
        .map(|column| (Style::Head, column.head.to_owned()))
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

/// Takes from the widest column that gives way until all fit, or none can give more.
fn shrink(widths: &mut [(usize, bool)], room: usize) {
    loop {
        let used: Vec<usize> = widths.iter().map(|(width, _)| *width).collect();
        let gaps = used
            .iter()
            .filter(|width| **width > 0)
            .count()
            .saturating_sub(1)
            * GAP;
        if used.iter().sum::<usize>() + gaps <= room {
            return;
        }
        let widest = widths
            .iter_mut()
            .filter(|(width, gives_way)| *gives_way && *width > LEAST)
            .max_by_key(|(width, _)| *width);
        match widest {
            Some((width, _)) => *width -= 1,
            None => return,
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
        shrink(&mut widths, 20);
        assert_eq!(widths.map(|(width, _)| width), [36, 8, 0, 8]);
    }
}
