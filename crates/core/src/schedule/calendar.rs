//! When a schedule is due, as instants. The time zones are those that the program was built with,
//! so the same question has the same answer on every machine.
//!
//! Where clocks change: a time that a clock does not show is due when it has been set forward; one
//! that it shows twice is due the first time. A cron expression that names every hour means each
//! one that passes, so it is due both times. Intervals know no clocks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use crate::{Timestamp, limits};

/// When.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calendar {
    /// At the times that a cron expression names, by the clocks of a time zone.
    Cron {
        /// The expression: five fields, or six with the second first.
        expression: String,
        /// The zone, by its name in the IANA database.
        zone: String,
    },
    /// Every so often, counted from when it was set.
    Every(Duration),
    /// Once.
    Once(Timestamp),
}

/// A calendar that was understood.
#[derive(Clone, Debug)]
pub struct Times {
    rule: Rule,
    /// From when intervals are counted.
    since: Timestamp,
}

#[derive(Clone, Debug)]
enum Rule {
    Cron(Box<Cron>, TimeZone),
    Every(i64),
    Once(Timestamp),
}

/// Wider than any change of clocks.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Calendar {
    /// The times that it names; intervals are counted from `since`.
    ///
    /// # Errors
    /// When it cannot be understood, with what to say instead.
    pub fn times(&self, since: Timestamp) -> Result<Times, String> {
        let rule = match self {
            Calendar::Cron { expression, zone } => {
                Rule::Cron(Box::new(Cron::parse(expression)?), zone_of(zone)?)
            }
            Calendar::Every(every) if *every < limits::EVERY => {
                let least = limits::EVERY;
                return Err(format!(
                    "an interval of {every:?} is shorter than {least:?}"
                ));
            }
            Calendar::Every(every) => {
                let micros = i64::try_from(every.as_micros());
                Rule::Every(micros.map_err(|_| format!("an interval of {every:?} is too long"))?)
            }
            Calendar::Once(at) => Rule::Once(*at),
        };
        Ok(Times { rule, since })
    }

    /// When, for people: `at 03:30, Monday to Friday, in Europe/Zurich`.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Calendar::Cron { expression, zone } => match Cron::parse(expression) {
                Ok(cron) => format!("{}, in {zone}", cron.words()),
                Err(_) => self.to_string(),
            },
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calendar::Cron { expression, zone } => write!(f, "cron `{expression}` in {zone}"),
            Calendar::Every(every) => write!(f, "every {every:?}"),
            Calendar::Once(at) => write!(f, "once, at {}", instant(*at)),
        }
    }
}

/// An instant as text, UTC: `2026-11-16T03:00:00Z`.
#[must_use]
pub fn instant(at: Timestamp) -> String {
    to_jiff(at).map_or_else(|| at.to_string(), |at| at.to_string())
}

fn zone_of(name: &str) -> Result<TimeZone, String> {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    let zones = ZONES.get_or_init(TimeZoneDatabase::bundled);
    zones.get(name).map_err(|_| {
        format!("there is no time zone `{name}`; say one such as Europe/Zurich, or UTC")
    })
}

impl Times {
    /// The first time after this one; none if there is none any more.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Cron(cron, zone) => {
                let next = next_of(cron, zone, to_jiff(after)?)?;
                Some(Timestamp(next.as_microsecond()))
            }
            Rule::Every(every) => {
                let since = self.since.0;
                let passed = after.0.checked_sub(since)?.div_euclid(*every);
                let next = passed.checked_add(1)?.checked_mul(*every)?;
                since.checked_add(next).map(Timestamp)
            }
            Rule::Once(at) => Some(*at).filter(|at| *at > after),
        }
    }

    /// The next times after this one, in order.
    pub fn following(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        std::iter::successors(self.next(after), |at| self.next(*at))
    }

    /// The latest times after `from` and up to `until`, in order, `most` of them; and whether there
    /// are more. It takes no longer if `from` is years ago.
    #[must_use]
    pub fn latest(
        &self,
        (from, until): (Timestamp, Timestamp),
        most: usize,
    ) -> (Vec<Timestamp>, bool) {
        let mut back = Duration::from_secs(60);
        loop {
            let near = until.before(back).max(from);
            let mut kept = VecDeque::new();
            let mut more = false;
            for at in self.following(near).take_while(|at| *at <= until) {
                kept.push_back(at);
                if kept.len() > most {
                    more = true;
                    kept.pop_front();
                }
            }
            if near == from || more {
                return (kept.into(), more);
            }
            back = back.saturating_mul(4);
        }
    }
}

fn to_jiff(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(at.0).ok()
}

fn next_of(cron: &Cron, zone: &TimeZone, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
    let mut civil = cron.after(zone.to_datetime(after))?;
    let mut shown_first = instant_of(zone, civil)?;
    while shown_first <= after {
        civil = cron.after(civil)?;
        shown_first = instant_of(zone, civil)?;
    }
    match cron.is_hourly() {
        false => Some(shown_first),
        true => Some(shown_again(cron, zone, (after, shown_first)).unwrap_or(shown_first)),
    }
}

/// When a clock of the zone first shows this time, or is set past it.
fn instant_of(zone: &TimeZone, civil: DateTime) -> Option<jiff::Timestamp> {
    let shown = zone.to_ambiguous_timestamp(civil);
    match shown.offset() {
        AmbiguousOffset::Gap { .. } => {
            let past = shown.later().ok()?;
            let past = past.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
            let change = zone.preceding(past).next();
            change.map(|change| change.timestamp())
        }
        _ => shown.earlier().ok(),
    }
}

/// The first time between these that a clock shows because it was set back.
fn shown_again(
    cron: &Cron,
    zone: &TimeZone,
    (after, before): (jiff::Timestamp, jiff::Timestamp),
) -> Option<jiff::Timestamp> {
    let day = jiff::SignedDuration::try_from(DAY).ok()?;
    let changes = zone.following(after.checked_sub(day).ok()?);
    for change in changes.take_while(|change| change.timestamp() < before) {
        let (at, offset) = (change.timestamp(), change.offset());
        let just = at.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        let was = zone.to_offset(just);
        if offset >= was {
            continue;
        }
        let from = match after < at {
            true => cron.at_or_after(offset.to_datetime(at)),
            false => cron.after(offset.to_datetime(after)),
        };
        let again = offset.to_timestamp(from?).ok()?;
        let repeated = from? < was.to_datetime(at);
        if repeated && again > after && again < before {
            return Some(again);
        }
    }
    None
}

/// An instant that somebody wrote: with its offset from UTC, as in `2026-11-16T03:00:00+01:00`, or
/// as a date with or without a time, which is UTC.
///
/// # Errors
/// When it is none of these.
pub fn read_instant(text: &str) -> Result<Timestamp, String> {
    let utc = || {
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    };
    let at = text.parse::<jiff::Timestamp>().ok().or_else(utc);
    let at = at.map(|at| Timestamp(at.as_microsecond()));
    at.ok_or_else(|| {
        "write a time such as 2026-11-16, 2026-11-16T03:00 or 2026-11-16T03:00:00+01:00".to_owned()
    })
}
