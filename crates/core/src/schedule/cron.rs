//! Cron expressions: which seconds of a calendar they name. What that means in a time zone is said
//! elsewhere; here a day has 24 hours.
//!
//! Five fields (minute, hour, day of month, month, day of week), or six with the second before
//! them. `*`, lists, ranges, steps, names of months and days, `L` for the last day of a month, `?`
//! for `*`; `@hourly` and its like. If both days are restricted, either will do, as in every cron.

use jiff::civil::{Date, DateTime, Time, Weekday};

/// A cron expression that was understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cron {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: u64,
    pub(super) months: u64,
    /// Sunday is 0.
    pub(super) weekdays: u64,
    /// The last day of a month, whichever that is.
    pub(super) last_day: bool,
    pub(super) any_day: bool,
    pub(super) any_weekday: bool,
}

/// No date that exists is further from the one before: 29 February, around 1900 and 2100.
const DAYS: usize = 366 * 9;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What a field may say.
struct Field {
    what: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

impl Field {
    const fn of(what: &'static str, least: u32, most: u32) -> Field {
        Field {
            what,
            least,
            most,
            names: &[],
        }
    }

    /// The numbers that the text names, as bits.
    fn read(&self, text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for part in text.split(',') {
            bits |= self.part(part)?;
        }
        Ok(bits)
    }

    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => (range, Some(self.step(step)?)),
        };
        let (first, last) = match range.split_once('-') {
            _ if is_any(range) => (self.least, self.most),
            Some((first, last)) => (self.number(first)?, self.number(last)?),
            None => {
                let first = self.number(range)?;
                (first, if step.is_some() { self.most } else { first })
            }
        };
        if first > last {
            let what = self.what;
            return Err(format!("the {what} `{part}` begins after it ends"));
        }
        let numbers = (first..=last).step_by(step.unwrap_or(1));
        Ok(numbers.fold(0, |bits, number| bits | 1 << number))
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        let step = text.parse().ok().filter(|step| *step > 0);
        step.ok_or_else(|| format!("the {} has the step `{text}`; say 1 or more", self.what))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        let named = self.names.iter().position(|name| *name == lower);
        let named = named.and_then(|at| u32::try_from(at).ok());
        let number = named.map(|at| at + self.least).or(text.parse().ok());
        let number = number.filter(|number| (self.least..=self.most).contains(number));
        number.ok_or_else(|| {
            let (what, least, most) = (self.what, self.least, self.most);
            format!("`{text}` is no {what}; say {least} to {most}, or *")
        })
    }
}

fn is_any(text: &str) -> bool {
    text == "*" || text == "?"
}

impl Cron {
    pub(crate) fn parse(text: &str) -> Result<Cron, String> {
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text => text,
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, rest) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            rest if rest.len() == 5 => ("0", rest),
            _ => {
                return Err(format!(
                    "`{text}` has {} fields; say minute, hour, day of month, month and day of \
                     week, such as `30 3 * * mon-fri`",
                    fields.len()
                ));
            }
        };
        let [minute, hour, day, month, weekday] = rest else {
            unreachable!("five were counted")
        };
        let last_day = day.split(',').any(|part| part == "L");
        let plain: Vec<&str> = day.split(',').filter(|part| *part != "L").collect();
        let days = Field::of("day of month", 1, 31);
        let months = Field {
            names: &MONTHS,
            ..Field::of("month", 1, 12)
        };
        let weekdays = Field {
            names: &WEEKDAYS,
            ..Field::of("day of week", 0, 7)
        };
        let weekdays = weekdays.read(weekday)?;
        Ok(Cron {
            seconds: Field::of("second", 0, 59).read(second)?,
            minutes: Field::of("minute", 0, 59).read(minute)?,
            hours: Field::of("hour", 0, 23).read(hour)?,
            days: match plain.is_empty() {
                true => 0,
                false => days.read(&plain.join(","))?,
            },
            months: months.read(month)?,
            // Sunday has two numbers.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            last_day,
            any_day: day.starts_with(['*', '?']),
            any_weekday: weekday.starts_with(['*', '?']),
        })
    }

    /// Does it name every hour? Then it means each one that passes, not one that the clock shows.
    pub(crate) fn is_hourly(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    /// The first time that it names at or after this one.
    pub(crate) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let whole = from.subsec_nanosecond() == 0;
        let from = match whole {
            true => from,
            false => second_after(from)?,
        };
        let mut time = Some(from.time());
        let mut date = from.date();
        for _ in 0..DAYS {
            if self.names(date) {
                let from = time.unwrap_or(Time::midnight());
                if let Some(found) = self.time_from(from) {
                    return Some(date.to_datetime(found));
                }
            }
            time = None;
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first time that it names after this one.
    pub(crate) fn after(&self, at: DateTime) -> Option<DateTime> {
        self.at_or_after(second_after(at)?)
    }

    fn names(&self, date: Date) -> bool {
        let has = |bits: u64, number: i8| bits >> number & 1 == 1;
        let last = self.last_day && date.day() == date.days_in_month();
        let day = has(self.days, date.day()) || last;
        let weekday = has(self.weekdays, weekday_number(date.weekday()));
        let either = match self.any_day || self.any_weekday {
            true => day && weekday,
            false => day || weekday,
        };
        has(self.months, date.month()) && either
    }

    /// The first time of a day at or after this one.
    fn time_from(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let this_hour = first(self.hours, hour) == Some(hour);
        let this_minute = this_hour && first(self.minutes, minute) == Some(minute);
        if this_minute && let Some(second) = first(self.seconds, second) {
            return Time::new(hour, minute, second, 0).ok();
        }
        if this_hour && let Some(minute) = first(self.minutes, minute + 1) {
            return Time::new(hour, minute, first(self.seconds, 0)?, 0).ok();
        }
        let hour = first(self.hours, hour + 1)?;
        Time::new(hour, first(self.minutes, 0)?, first(self.seconds, 0)?, 0).ok()
    }
}

/// The first number at or above this one whose bit is set.
fn first(bits: u64, from: i8) -> Option<i8> {
    let left = bits >> from;
    (left != 0).then(|| from + i8::try_from(left.trailing_zeros()).expect("64 bits"))
}

fn weekday_number(weekday: Weekday) -> i8 {
    weekday.to_sunday_zero_offset()
}

fn second_after(at: DateTime) -> Option<DateTime> {
    let whole = at.with().subsec_nanosecond(0).build().ok()?;
    whole.checked_add(jiff::Span::new().seconds(1)).ok()
}
