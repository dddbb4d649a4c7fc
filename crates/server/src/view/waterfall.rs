//! A journal as bars over time: each call, from its begin to its end, in parts. What was worked on,
//! what was waited for, the pauses between attempts, and how long it lay ready.
//!
//! Nothing is said that the journal does not know. When a worker takes a run up is not recorded,
//! only its next round: so what is ready is ready until then. A step has no begin of its own: it
//! began with the round before if the run stayed in hand and nothing else ended meanwhile, which
//! their fences tell; else it is a mark at its commit.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel::{Context, Entry, Failure, Name, Timestamp};
use roundel_core::{Call, Outcome};

use super::bar::{Bar, Kind, Part, Timeline, own_round, part, waits};
use super::timeline::{Moment, say};

/// Bars that are shown: the last of them.
const BARS: usize = 500;
/// Parts of a bar; the attempts before them are one.
const PARTS: usize = 100;
/// A claim takes its time: what was not ready for longer was not late.
const PROMPT: Duration = Duration::from_millis(10);
/// What was started longer after the time of its schedule was made up for, or asked for.
const LATE: Duration = Duration::from_secs(3600);
/// The key of `roundel::SCHEDULED_AT`.
const SCHEDULED_AT: Name = Name::constant("roundel.scheduled_at");

/// What an open call is doing.
#[derive(Clone, Debug)]
struct Open {
    bar: usize,
    what: Call,
    kind: Kind,
    /// Since when, or from when on: an attempt begins when its pause is over.
    since: Timestamp,
    /// Attempts that failed.
    failed: usize,
}

impl Open {
    /// It is over only when what it set off is, also in a rollback.
    fn sets_off(&self) -> bool {
        let whats = matches!(
            self.what,
            Call::Child { .. }
                | Call::Children { .. }
                | Call::Batch { .. }
                | Call::Publish { .. }
                | Call::RollBack { .. }
        );
        whats || (self.kind == Kind::Waits && matches!(self.what, Call::Step { .. }))
    }
}

/// A round: when it was committed, and under which fence.
#[derive(Clone, Copy, Debug)]
struct Round {
    at: Timestamp,
    epoch: u64,
}

/// What comes after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// More of the same: whoever has the run goes on with it.
    InHand,
    /// A round of somebody who took the run up in between.
    At(Timestamp),
    /// Nothing yet.
    NotYet,
}

struct Reader<'m> {
    moments: &'m [Moment],
    /// What has not ended goes on until then.
    now: Timestamp,
    bars: Vec<Bar>,
    open: BTreeMap<u32, Open>,
    /// Which bar is which call's.
    of: BTreeMap<u32, usize>,
    /// The round that is read.
    round: Round,
    /// When the one before was committed, if its worker had the run until now.
    since: Option<Timestamp>,
}

/// These entries as bars; what has not ended goes on until now.
#[must_use]
pub(super) fn bars(moments: &[Moment], now: Timestamp) -> Timeline {
    let begin = moments.first().map_or(now, |moment| moment.at);
    let last = moments.last().map_or(begin, |moment| moment.at);
    let mut reader = Reader {
        moments,
        now: now.max(last),
        bars: Vec::new(),
        open: BTreeMap::new(),
        of: BTreeMap::new(),
        round: Round {
            at: begin,
            epoch: 0,
        },
        since: None,
    };
    for (nth, moment) in moments.iter().enumerate() {
        reader.enter(nth, moment);
        reader.read(nth, moment);
        // When a step began is known only if nothing else ended in its round before it.
        if !matches!(moment.entry, Entry::ContextSet { .. }) {
            reader.since = None;
        }
    }
    let now = reader.now;
    for open in std::mem::take(&mut reader.open).into_values() {
        reader.close(&open, now, None);
    }
    let mut bars = reader.bars;
    let left_out = bars.len().saturating_sub(BARS);
    bars.drain(..left_out);
    let from = bars.iter().map(|bar| bar.from).min().unwrap_or(begin);
    let to = bars.iter().map(|bar| bar.to).max().unwrap_or(begin);
    Timeline {
        from,
        to: to.max(last),
        bars,
        left_out,
    }
}

impl Reader<'_> {
    /// Is it of another round than the entry before?
    fn enter(&mut self, nth: usize, moment: &Moment) {
        let (at, epoch) = (moment.at, moment.epoch);
        let before = nth.checked_sub(1).map(|before| &self.moments[before]);
        if before.is_some_and(|before| before.epoch == epoch) {
            // A start that its first round joined was leased in that commit.
            self.round.epoch = epoch.max(1);
            return;
        }
        let kept = before.is_some() && self.is_kept(epoch);
        self.since = kept.then_some(self.round.at);
        self.round = Round { at, epoch };
    }

    /// Is the round under this fence by who committed the last one, and had the run meanwhile?
    fn is_kept(&self, epoch: u64) -> bool {
        self.round.epoch > 0 && epoch == self.round.epoch + 1
    }

    fn read(&mut self, nth: usize, moment: &Moment) {
        let at = moment.at;
        match &moment.entry {
            Entry::Started { context, due, .. } => self.started(self.next(nth), context, *due),
            Entry::RollingBack { .. } => self.rolls_back(self.next(nth), moment),
            Entry::Begun { call, what } => self.begin(*call, what, at),
            Entry::Done { call, outcome } => self.end(*call, failure_of(outcome)),
            Entry::Did {
                call,
                what,
                outcome,
            } => {
                self.work(*call, what, at);
                self.end(*call, failure_of(outcome));
            }
            Entry::Attempted {
                call,
                what,
                failure,
                at,
                retry_at,
                ..
            } => {
                self.work(*call, what, *at);
                self.attempted(*call, failure, (*at, *retry_at));
            }
            Entry::Worked { call, what, .. } => {
                self.work(*call, what, at);
                self.worked(*call);
            }
            Entry::Settled { call, failure, .. } => self.end(*call, failure.as_deref()),
            Entry::Dropped { call } => {
                let open = self.open.remove(call);
                open.iter().for_each(|open| self.leave(open));
            }
            Entry::Continued | Entry::Ended { .. } => self.let_go(|_, _| true),
            Entry::ContextSet { .. }
            | Entry::DeadlineMissed { .. }
            | Entry::CancelSeen
            | Entry::Kept => {}
        }
    }

    /// What comes after the round of this entry.
    fn next(&self, nth: usize) -> Next {
        match self.moments.get(nth + 1) {
            None => Next::NotYet,
            Some(next) if next.epoch == self.moments[nth].epoch => Next::InHand,
            Some(next) if self.is_kept(next.epoch) => Next::InHand,
            Some(next) => Next::At(next.at),
        }
    }

    /// The run was started: nothing of it was done until its first round.
    fn started(&mut self, next: Next, context: &Context, due: Option<Timestamp>) {
        let (at, ready) = (self.round.at, due.unwrap_or(self.round.at));
        let until = match next {
            Next::InHand => return,
            Next::At(until) => until,
            Next::NotYet => self.now,
        };
        let mut parts = Vec::new();
        let scheduled = context.get(&SCHEDULED_AT);
        let scheduled = scheduled.and_then(|time| time.decode::<Timestamp>().ok());
        if let Some(time) = scheduled.filter(|time| *time < at && at.since(*time) <= LATE) {
            let text = "its schedule's time had come, and nobody had started it";
            parts.push(part(Kind::Queued, (time, at), text));
        }
        if ready > at {
            let text = "waits until it may begin";
            parts.push(part(Kind::Waits, (at, ready.min(until)), text));
        }
        if ready < until {
            let text = "ready, until its first round";
            parts.push(part(Kind::Queued, (ready, until), text));
        }
        self.whole("queue delay".to_owned(), parts, next != Next::NotYet);
    }

    /// From here on the run undoes what it did: at once, or when somebody has taken it up.
    fn rolls_back(&mut self, next: Next, moment: &Moment) {
        self.let_go(|_, open| !open.sets_off());
        let until = match next {
            // What it set off ends first.
            _ if !self.open.is_empty() => None,
            Next::InHand => None,
            Next::At(until) => Some(until),
            Next::NotYet => Some(self.now),
        };
        let text = "ready, until its next round";
        let ready = |until| part(Kind::Queued, (moment.at, until), text);
        let parts = until.map(ready).into_iter().collect();
        let text = say(moment, &BTreeMap::new()).text;
        self.whole(text, parts, next != Next::NotYet);
    }

    /// A bar of the run as a whole.
    fn whole(&mut self, text: String, parts: Vec<Part>, ended: bool) {
        let from = parts.first().map_or(self.round.at, |part| part.from);
        self.bars.push(Bar {
            call: None,
            text,
            run: None,
            from,
            to: parts.last().map_or(from, |part| part.to),
            ended,
            failed: false,
            parts,
        });
    }

    fn begin(&mut self, call: u32, what: &Call, since: Timestamp) {
        let open = Open {
            bar: self.bars.len(),
            what: what.clone(),
            kind: match waits(what) {
                Some(_) => Kind::Waits,
                None => Kind::Runs,
            },
            since,
            failed: 0,
        };
        self.of.insert(call, open.bar);
        self.open.insert(call, open);
        self.bars.push(Bar {
            call: Some(call),
            text: self.name(what),
            run: match what {
                Call::Child { run, .. } | Call::Spawn { run, .. } | Call::Watch { run } => {
                    Some(*run)
                }
                _ => None,
            },
            from: since,
            to: since,
            ended: false,
            failed: false,
            parts: Vec::new(),
        });
    }

    /// A call in words; of what is rolled back, the call that set it off.
    fn name(&self, what: &Call) -> String {
        let known = match *what {
            Call::RollBack {
                of,
                execution: None,
            } => self.of.get(&of),
            _ => None,
        };
        match known {
            Some(bar) => format!("roll back what {} set off", self.bars[*bar].text),
            None => what.to_string(),
        }
    }

    /// A call has got somewhere whose begin may not be recorded: a step.
    fn work(&mut self, call: u32, what: &Call, at: Timestamp) {
        if !self.open.contains_key(&call) {
            let since = self.since.filter(|since| own_round(what) && *since <= at);
            self.begin(call, what, since.unwrap_or(at));
        }
    }

    fn attempted(&mut self, call: u32, failure: &Failure, (at, again): (Timestamp, Timestamp)) {
        let Some(mut open) = self.open.remove(&call) else {
            return;
        };
        open.failed += 1;
        let text = attempt(open.failed);
        let failed = Part {
            failure: Some(failure.to_string()),
            ..part(Kind::Runs, (open.since.min(at), at), text)
        };
        self.push(open.bar, failed);
        let text = format!("pause before attempt {}", open.failed + 1);
        self.push(open.bar, part(Kind::Pauses, (at, again), text));
        (open.since, open.kind) = (again, Kind::Runs);
        self.open.insert(call, open);
    }

    /// A step is committed; what it set off is waited for.
    fn worked(&mut self, call: u32) {
        let Some(mut open) = self.open.remove(&call) else {
            return;
        };
        let at = self.round.at;
        self.close(&open, at, None);
        (open.since, open.kind) = (at, Kind::Waits);
        self.bars[open.bar].ended = false;
        self.open.insert(call, open);
    }

    fn end(&mut self, call: u32, failure: Option<&Failure>) {
        if let Some(open) = self.open.remove(&call) {
            self.close(&open, self.round.at, failure);
            self.bars[open.bar].ended = true;
        }
    }

    /// These calls end without an outcome.
    fn let_go(&mut self, which: impl Fn(u32, &Open) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(call, open)| which(*call, open));
        self.open = kept;
        let gone: BTreeMap<u32, Open> = gone;
        gone.values().for_each(|open| self.leave(open));
    }

    /// Nobody waits for it any more.
    fn leave(&mut self, open: &Open) {
        self.close(open, self.round.at, None);
        let bar = &mut self.bars[open.bar];
        bar.ended = true;
        if let Some(last) = bar.parts.last_mut() {
            last.text.push_str(", and is let go");
        }
    }

    /// What it did last, up to then.
    fn close(&mut self, open: &Open, at: Timestamp, failure: Option<&Failure>) {
        let (kind, since) = (open.kind, open.since);
        if open.failed > 0 && since > at {
            // It did not come to another attempt.
            let pause = self.bars[open.bar].parts.last_mut();
            pause.expect("a pause follows a failure").to = at;
        } else {
            let text = match (kind, waits(&open.what), open.failed) {
                (Kind::Waits, text, _) => text.unwrap_or("waits for what it set off").to_owned(),
                (_, _, 0) if since == at && own_round(&open.what) => {
                    "done in one round; since when is not recorded".to_owned()
                }
                (_, _, 0) => "runs".to_owned(),
                (_, _, failed) => attempt(failed + 1),
            };
            let due = match open.what {
                Call::Sleep { until } => until.max(since),
                Call::Wait {
                    until: Some(until), ..
                } if failure.is_some() => until.max(since),
                _ => at,
            };
            let due = if at.since(due) > PROMPT { due } else { at };
            self.push(open.bar, part(kind, (since, due.min(at)), text));
            if due < at {
                let text = "ready, until its next round";
                self.push(open.bar, part(Kind::Queued, (due, at), text));
            }
        }
        let bar = &mut self.bars[open.bar];
        (bar.to, bar.failed) = (at.max(bar.from), failure.is_some());
        if let Some(last) = bar.parts.last_mut() {
            last.failure = failure.map(Failure::to_string);
        }
    }

    fn push(&mut self, bar: usize, part: Part) {
        let parts = &mut self.bars[bar].parts;
        parts.push(part);
        if parts.len() > PARTS {
            let second = parts.remove(1);
            let first = &mut parts[0];
            (first.to, first.kind) = (second.to, Kind::Pauses.as_str());
            "earlier attempts, and pauses between them".clone_into(&mut first.text);
            first.failure = None;
        }
    }
}

/// The first begins with its call; when another is taken up is not recorded.
fn attempt(number: usize) -> String {
    match number {
        1 => "attempt 1".to_owned(),
        number => format!("attempt {number}, from when it may begin"),
    }
}

fn failure_of(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Failure(failure) => Some(failure),
        Outcome::Value(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use roundel::{Payload, RunState};
    use roundel_core::Why;

    /// A millisecond of the test's day.
    fn at(ms: i64) -> Timestamp {
        Timestamp(ms * 1000)
    }

    /// Rounds: under which fence, when, and what they say.
    fn moments(rounds: &[(u64, i64, &[Entry])]) -> Vec<Moment> {
        let rounds = rounds.iter();
        let all = rounds.flat_map(|(epoch, ms, entries)| {
            let entries = entries.iter();
            entries.map(move |entry| (*epoch, at(*ms), entry.clone()))
        });
        let numbered = (1..).zip(all);
        let moment = |(number, (epoch, at, entry))| Moment {
            number,
            at,
            epoch,
            entry,
        };
        numbered.map(moment).collect()
    }

    fn name(text: &'static str) -> Name {
        Name::constant(text)
    }

    fn started(due: Option<i64>) -> Entry {
        Entry::Started {
            workflow: name("order"),
            version: 1,
            input: Payload::null(),
            unsettled: None,
            context: Context::default(),
            due: due.map(at),
        }
    }

    fn effect() -> Call {
        let (name, undo) = (name("charge"), None);
        Call::Effect { name, undo }
    }

    fn step() -> Call {
        let (name, undo) = (name("reserve"), None);
        Call::Step { name, undo }
    }

    fn begun(call: u32, what: Call) -> Entry {
        Entry::Begun { call, what }
    }

    fn done(call: u32) -> Entry {
        let outcome = Outcome::Value(Payload::null());
        Entry::Done { call, outcome }
    }

    fn did(call: u32, what: Call) -> Entry {
        let outcome = Outcome::Value(Payload::null());
        Entry::Did {
            call,
            what,
            outcome,
        }
    }

    fn attempted(call: u32, what: Call, attempt: u32, (failed, again): (i64, i64)) -> Entry {
        Entry::Attempted {
            call,
            what,
            attempt,
            failure: Box::new(Failure::transient("no answer")),
            at: at(failed),
            retry_at: at(again),
        }
    }

    fn ended(state: RunState) -> Entry {
        Entry::Ended { state }
    }

    /// Each bar in a line: its text, and its parts with their times in milliseconds.
    fn lines(rounds: &[(u64, i64, &[Entry])], now: i64) -> Vec<String> {
        let shown = bars(&moments(rounds), at(now));
        let line = |bar: &Bar| {
            let parts = bar.parts.iter().map(|part| {
                let failed = if part.failure.is_some() { "!" } else { "" };
                let (from, to) = (part.from.0 / 1000, part.to.0 / 1000);
                format!(" {}{failed} {from}-{to}", part.kind)
            });
            let open = if bar.ended { "" } else { " open" };
            format!("{}:{}{open}", bar.text, parts.collect::<String>())
        };
        shown.bars.iter().map(line).collect()
    }

    #[test]
    fn o_a_run_lay_ready_from_its_start_to_its_first_round() {
        let begins = [begun(1, effect())];
        let ends = [done(1), ended(RunState::Completed)];
        let start = [started(None)];
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (1, 40, &begins), (2, 90, &ends)];
        assert_eq!(
            lines(rounds, 500),
            ["queue delay: queued 0-40", "effect `charge`: runs 40-90"]
        );
        // Nobody has it yet.
        assert_eq!(lines(&rounds[..1], 500), ["queue delay: queued 0-500 open"]);
        // It was begun in the commit that started it.
        let both = [started(None), begun(1, effect())];
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &both), (2, 90, &ends)];
        assert_eq!(lines(rounds, 500), ["effect `charge`: runs 0-90"]);
    }

    #[test]
    fn o_a_run_that_may_begin_later_is_not_late_until_then() {
        let start = [started(Some(1000))];
        let begins = [begun(1, effect())];
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (1, 1200, &begins)];
        assert_eq!(
            lines(rounds, 1300),
            [
                "queue delay: waits 0-1000 queued 1000-1200",
                "effect `charge`: runs 1200-1300 open"
            ]
        );
        assert_eq!(
            lines(&rounds[..1], 300),
            ["queue delay: waits 0-300 open"],
            "it is not due"
        );
    }

    #[test]
    fn o_a_schedules_time_is_where_the_delay_begins_unless_it_was_made_up_for() {
        let scheduled = |ms: i64| {
            let time = Payload::encode(&at(ms)).unwrap();
            let mut context = Context::default();
            context.set(SCHEDULED_AT, time);
            let due = None;
            [Entry::Started {
                workflow: name("order"),
                version: 1,
                input: Payload::null(),
                unsettled: None,
                context,
                due,
            }]
        };
        let begins = [begun(1, effect())];
        let hour = 3_600_000;
        let queue = |start: &[Entry]| {
            let rounds: &[(u64, i64, &[Entry])] =
                &[(0, 2 * hour, start), (1, 2 * hour + 5, &begins)];
            lines(rounds, 2 * hour + 5)[0].clone()
        };
        assert_eq!(
            queue(&scheduled(2 * hour - 20)),
            "queue delay: queued 7199980-7200000 queued 7200000-7200005"
        );
        assert_eq!(
            queue(&scheduled(hour - 1)),
            "queue delay: queued 7200000-7200005"
        );
    }

    #[test]
    fn o_attempts_are_parts_with_their_failures_and_the_pauses_between() {
        let start = [started(None), begun(1, effect())];
        let one = [attempted(1, effect(), 1, (100, 300))];
        let two = [attempted(1, effect(), 2, (400, 800))];
        let ends = [done(1), ended(RunState::Completed)];
        let rounds: &[(u64, i64, &[Entry])] = &[
            (0, 0, &start),
            (2, 100, &one),
            (4, 400, &two),
            (6, 950, &ends),
        ];
        assert_eq!(
            lines(rounds, 999),
            ["effect `charge`: runs! 0-100 pauses 100-300 \
                 runs! 300-400 pauses 400-800 runs 800-950"]
        );
        let shown = bars(&moments(rounds), at(999));
        let parts = &shown.bars[0].parts;
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "attempt 1",
                "pause before attempt 2",
                "attempt 2, from when it may begin",
                "pause before attempt 3",
                "attempt 3, from when it may begin"
            ]
        );
        assert!(parts[0].failure.as_ref().unwrap().contains("no answer"));
        // While it pauses there is no other attempt.
        assert_eq!(
            lines(&rounds[..3], 700),
            ["effect `charge`: runs! 0-100 pauses 100-300 runs! 300-400 pauses 400-700 open"]
        );
    }

    #[test]
    fn o_many_attempts_are_told_in_bounded_parts() {
        let start = [started(None), begun(1, effect())];
        let failed = (1..=500_u32).map(|nth| {
            let ms = i64::from(nth) * 10;
            [attempted(1, effect(), nth, (ms, ms + 5))]
        });
        let failed: Vec<[Entry; 1]> = failed.collect();
        let mut rounds: Vec<(u64, i64, &[Entry])> = vec![(0, 0, &start)];
        for (nth, entry) in (1..).zip(&failed) {
            rounds.push((2 * nth, 10 * i64::try_from(nth).unwrap(), entry));
        }
        let shown = bars(&moments(&rounds), at(5005));
        let parts = &shown.bars[0].parts;
        assert_eq!(parts.len(), PARTS);
        assert!(parts[0].text.contains("earlier attempts"), "{parts:?}");
        let mut pairs = parts.windows(2);
        assert!(
            pairs.all(|pair| pair[0].to == pair[1].from),
            "nothing is left out between them"
        );
    }

    #[test]
    fn o_what_is_slept_is_over_when_it_is_due_and_ready_from_then_on() {
        let until = at(1000);
        let start = [started(None), begun(1, Call::Sleep { until })];
        let late = [done(1), begun(2, effect())];
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (3, 1500, &late)];
        let charge = "effect `charge`: runs 1500-1600 open";
        assert_eq!(
            lines(rounds, 1600),
            ["sleep: waits 0-1000 queued 1000-1500", charge]
        );
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (3, 1001, &late[..1])];
        assert_eq!(lines(rounds, 1600), ["sleep: waits 0-1001"]);
        assert_eq!(lines(&rounds[..1], 600), ["sleep: waits 0-600 open"]);
        assert_eq!(
            lines(&rounds[..1], 1600),
            ["sleep: waits 0-1000 queued 1000-1600 open"]
        );
    }

    #[test]
    fn o_a_step_has_a_begin_only_where_the_journal_knows_it() {
        let start = [started(None)];
        let first = [did(1, step())];
        let ends = [did(2, step())];
        // The second follows at once; before the first the run was taken up at a time unknown.
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (1, 50, &first), (2, 80, &ends)];
        assert_eq!(
            lines(rounds, 80),
            [
                "queue delay: queued 0-50",
                "step `reserve`: runs 50-50",
                "step `reserve`: runs 50-80"
            ]
        );
        // It was given up in between, or something else came before it in its round.
        let mixed = [done(7), did(2, step())];
        for last in [(4, 80, &ends[..]), (2, 80, &mixed[..])] {
            let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (1, 50, &first), last];
            assert_eq!(lines(rounds, 80)[2], "step `reserve`: runs 80-80");
        }
    }

    #[test]
    fn o_a_step_waits_for_what_it_set_off_after_its_commit() {
        let (call, what) = (1, step());
        let (value, window, emitted) = (Payload::null(), None, Vec::new());
        let worked = Entry::Worked {
            call,
            what,
            value,
            window,
            emitted,
        };
        let settled = Entry::Settled {
            call,
            ends: Vec::new(),
            failure: Some(Box::new(Failure::business("no stock"))),
        };
        let (start, worked, settled) = ([started(None)], [worked], [settled]);
        let rounds: &[(u64, i64, &[Entry])] =
            &[(0, 0, &start), (1, 10, &worked), (4, 90, &settled)];
        assert_eq!(
            lines(rounds, 99)[1],
            "step `reserve`: runs 10-10 waits! 10-90"
        );
        assert_eq!(
            lines(&rounds[..2], 99)[1],
            "step `reserve`: runs 10-10 waits 10-99 open"
        );
    }

    #[test]
    fn o_a_rollback_lets_go_of_what_is_open_and_its_undos_are_bars() {
        let (of, execution) = (1, None);
        let undo = Call::Undo {
            of,
            name: name("charge"),
            execution,
        };
        let back = |why| {
            let (was, context) = (None, Context::default());
            Entry::RollingBack { why, was, context }
        };
        let why = Why::Failed(Box::new(Failure::business("no")));
        let start = [started(None), begun(1, effect()), begun(2, effect())];
        let fails = [done(1), back(why)];
        let tries = [attempted(3, undo.clone(), 1, (120, 200))];
        let ends = [did(3, undo), ended(RunState::RolledBack)];
        let rounds: &[(u64, i64, &[Entry])] = &[
            (0, 0, &start),
            (2, 100, &fails),
            (3, 120, &tries),
            (6, 230, &ends),
        ];
        assert_eq!(
            lines(rounds, 999),
            [
                "effect `charge`: runs 0-100",
                "effect `charge`: runs 0-100",
                "rolls back: it failed:",
                "undo `charge`: runs! 100-120 pauses 120-200 runs 200-230"
            ]
        );
        // On request it first lies ready, until somebody takes it up.
        let asked = [back(Why::Asked)];
        let start = [started(None), ended(RunState::Completed)];
        let rounds: &[(u64, i64, &[Entry])] = &[(0, 0, &start), (5, 100, &asked), (7, 160, &ends)];
        assert_eq!(
            lines(rounds, 999)[..1],
            ["rolls back: it is undone: queued 100-160"]
        );
    }

    #[test]
    fn o_the_last_five_hundred_bars_are_shown_and_the_rest_is_counted() {
        let many: Vec<Entry> = (1..=700).map(|call| did(call, step())).collect();
        let shown = bars(&moments(&[(1, 0, &many)]), at(1));
        assert_eq!((shown.bars.len(), shown.left_out), (BARS, 200));
        assert_eq!(shown.bars[0].call, Some(201));
    }
}
