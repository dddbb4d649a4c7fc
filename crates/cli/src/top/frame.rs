//! A look as lines that fit the terminal: what matters most comes first, and lists give way.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel::RunState;
use roundel_server::view;

use super::snapshot::{Rates, Snapshot};
use crate::show::table::{self, Cell, Column, fixed, flexible, plain};
use crate::show::{Screen, Style, clean, time};

/// Rows of a list where there is room for all.
const MOST: usize = 50;
/// States that a line is about, with their words.
const STATES: [RunState; 5] = [
    RunState::Ready,
    RunState::Running,
    RunState::Waiting,
    RunState::RollingBack,
    RunState::Parked,
];
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) struct Frame<'a> {
    pub(super) seen: &'a Snapshot,
    pub(super) rates: &'a Rates,
    /// How often it is looked; once if nothing.
    pub(super) every: Option<Duration>,
}

impl Frame<'_> {
    /// In so many rows.
    pub(super) fn draw(&self, screen: &mut Screen, rows: usize) {
        self.head(screen);
        let lists = [
            self.workflows(),
            self.queues(),
            self.workers(),
            self.troubles(),
        ];
        let lists: Vec<_> = lists
            .into_iter()
            .filter(|list| !list.rows.is_empty())
            .collect();
        // Each has an empty line and a head; what is left is shared, and who needs less leaves it.
        let mut room = rows.saturating_sub(4 + 2 * lists.len());
        let mut left = lists.len();
        for list in &lists {
            let share = (room / left.max(1)).clamp(1, MOST);
            let shown = list.rows.len().min(share);
            room = room.saturating_sub(shown);
            left -= 1;
            screen.line("");
            table::show(screen, &list.columns, &list.rows[..shown]);
        }
    }

    fn head(&self, screen: &mut Screen) {
        let seen = self.seen;
        let how = match self.every {
            Some(every) => format!("every {}, q leaves", time::span(every)),
            None => String::new(),
        };
        let title = format!("roundel  namespace {}", clean(&seen.namespace));
        let title = screen.paint(Style::Head, &title);
        let more = format!("  {}  {how}", time::utc(seen.now));
        let more = screen.paint(Style::Dim, more.trim_end());
        screen.line(&format!("{title}{more}"));
        let mut states = String::new();
        for state in STATES {
            let count = seen.count(state);
            let style = match (state, count) {
                (_, 0) => Style::Dim,
                (RunState::Parked, _) => Style::Look,
                (RunState::Running, _) => Style::Busy,
                _ => Style::Plain,
            };
            let word = state.as_str().replace('_', " ");
            states += &screen.paint(style, &format!("{} {word}", grouped(count)));
            states += "   ";
        }
        states += &screen.paint(Style::Dim, &format!("{} ended", grouped(seen.ended())));
        screen.line(&states);
        let waits = match seen.oldest {
            Some(at) => format!("longest ready: {}", time::span(seen.now.since(at))),
            None => "nothing is ready and waits".to_owned(),
        };
        match (self.rates.started.last(), self.rates.ended.last()) {
            (Some(started), Some(ended)) => {
                let line = format!("started {started:.1}/s   ended {ended:.1}/s   {waits}");
                screen.line(&line);
                let room = screen.width.unwrap_or(80).saturating_sub(1);
                let picture = sparks(&self.rates.ended, room);
                let picture = screen.paint(Style::Busy, &picture);
                screen.line(&picture);
            }
            _ => screen.line(&waits),
        }
    }

    fn workflows(&self) -> List<'static> {
        let mut by: BTreeMap<(&str, u32), BTreeMap<&str, u64>> = BTreeMap::new();
        for count in &self.seen.counts.runs {
            let of = by
                .entry((count.workflow.as_str(), count.version))
                .or_default();
            let word = match count.state.has_ended() {
                true => "ended",
                false => count.state.as_str(),
            };
            *of.entry(word).or_default() += count.count;
        }
        let words = STATES.map(RunState::as_str);
        let mut busiest: Vec<_> = by.into_iter().collect();
        let open = |of: &BTreeMap<&str, u64>| -> u64 {
            words.iter().filter_map(|word| of.get(word)).sum()
        };
        busiest.sort_by_key(|(_, of)| std::cmp::Reverse(open(of)));
        let rows = busiest.iter().map(|((workflow, version), of)| {
            let name = match version {
                1 => (*workflow).to_owned(),
                version => format!("{workflow} v{version}"),
            };
            let number = |word: &str| of.get(word).map_or_else(String::new, |n| grouped(*n));
            let mut row = vec![plain(name)];
            row.extend(words.iter().map(|word| plain(number(word))));
            row.push((Style::Dim, number("ended")));
            row
        });
        let mut columns = vec![flexible("workflow")];
        let heads = [
            "ready",
            "running",
            "waiting",
            "rolling back",
            "parked",
            "ended",
        ];
        columns.extend(heads.map(fixed));
        List {
            columns,
            rows: rows.collect(),
        }
    }

    fn queues(&self) -> List<'static> {
        let rows = self.seen.queues.iter().map(|queue| {
            let paused = match queue.paused {
                true => (Style::Look, "paused".to_owned()),
                false => plain(""),
            };
            let most = queue
                .concurrency
                .map_or_else(String::new, |most| format!(" of {most}"));
            let rate = queue.rate.as_ref().map_or_else(String::new, |rate| {
                let per = time::span(Duration::from_millis(rate.per_ms));
                format!("{} in {per}", rate.count)
            });
            vec![
                plain(queue.queue.as_str()),
                plain(format!("{}{most}", queue.in_hand)),
                plain(rate),
                paused,
            ]
        });
        List {
            columns: vec![
                flexible("queue"),
                fixed("in hand"),
                fixed("rate"),
                fixed("state"),
            ],
            rows: rows.collect(),
        }
    }

    fn workers(&self) -> List<'static> {
        let now = self.seen.now;
        let rows = self.seen.workers.iter().map(|worker| {
            let suspect = worker
                .suspect
                .map_or_else(String::new, |run| run.to_string());
            vec![
                plain(worker.name.clone()),
                plain(grouped(worker.leases)),
                (Style::Dim, time::short(now.since(worker.started_at))),
                (Style::Dim, time::short(now.since(worker.seen_at))),
                (Style::Look, suspect),
            ]
        });
        List {
            columns: vec![
                flexible("worker"),
                fixed("runs"),
                fixed("up"),
                fixed("seen"),
                flexible("tries alone"),
            ],
            rows: rows.collect(),
        }
    }

    /// What waits for an operator, and what failed, the latest first.
    fn troubles(&self) -> List<'static> {
        let (seen, now) = (self.seen, self.seen.now);
        let why = |parked: &view::Parked| {
            let failure = parked.failure.as_ref();
            failure.map_or_else(String::new, |failure| failure.message.clone())
        };
        let parked = seen.parked.iter().map(|parked| {
            let id = parked.id.clone();
            (
                parked.since,
                (Style::Look, "parked"),
                id,
                &parked.workflow,
                why(parked),
            )
        });
        let failed = seen.failed.iter().map(|run| {
            let why = match &run.outcome {
                Some(roundel_core::Outcome::Failure(failure)) => failure.message.clone(),
                _ => String::new(),
            };
            let state = (view::style(run.state), run.state.as_str());
            (
                run.changed_at,
                state,
                run.run.to_string(),
                &run.workflow,
                why,
            )
        });
        let mut all: Vec<_> = parked.chain(failed).collect();
        all.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        let rows = all
            .into_iter()
            .map(|(at, (style, state), id, workflow, why)| {
                let cells: Vec<Cell> = vec![
                    (Style::Dim, time::short(now.since(at))),
                    (style, state.to_owned()),
                    plain(id),
                    plain(workflow.as_str()),
                    plain(why),
                ];
                cells
            });
        List {
            columns: vec![
                fixed("ago"),
                fixed("state"),
                fixed("run"),
                flexible("workflow"),
                flexible("why"),
            ],
            rows: rows.collect(),
        }
    }
}

struct List<'a> {
    columns: Vec<Column<'a>>,
    rows: Vec<Vec<Cell>>,
}

/// The last of these that fit, as bars.
fn sparks(rates: &[f64], room: usize) -> String {
    let shown = &rates[rates.len().saturating_sub(room)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| match most > 0.0 {
        false => BARS[0],
        true => {
            let height = (rate / most * (BARS.len() - 1) as f64).round();
            BARS[(height as usize).min(BARS.len() - 1)]
        }
    };
    shown.iter().map(bar).collect()
}

/// With commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_rates_have_bars() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(sparks(&[], 10), "");
        assert_eq!(sparks(&[0.0, 0.0], 10), "▁▁");
        assert_eq!(sparks(&[0.0, 7.0, 14.0], 2), "▅█");
    }
}
