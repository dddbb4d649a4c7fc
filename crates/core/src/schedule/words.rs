//! What a cron expression means, in words: `at 03:30, Monday to Friday`.
//!
//! Made from what was understood, not from what was written: two expressions that name the same
//! times read the same.

use super::cron::Cron;

/// More times of a day than these are told as hours and minutes apart.
const TIMES: usize = 4;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A part of an expression: the numbers that it names, of those that there are.
struct Part {
    bits: u64,
    least: u32,
    most: u32,
}

impl Part {
    fn numbers(&self) -> Vec<u32> {
        (self.least..=self.most)
            .filter(|number| self.bits >> number & 1 == 1)
            .collect()
    }

    fn is_all(&self) -> bool {
        self.numbers().len() == (self.most - self.least + 1) as usize
    }

    /// The step, if it names every so many from the first on.
    fn step(&self) -> Option<u32> {
        let numbers = self.numbers();
        let [first, second, ..] = numbers.as_slice() else {
            return None;
        };
        let step = second - first;
        let all: Vec<u32> = (self.least..=self.most).step_by(step as usize).collect();
        let whole = (self.most - self.least + 1).is_multiple_of(step);
        (*first == self.least && whole && all == numbers).then_some(step)
    }

    /// The numbers, as ranges where three or more follow each other.
    fn listed(&self, name: impl Fn(u32) -> String) -> String {
        let (numbers, mut parts) = (self.numbers(), Vec::new());
        let mut rest = numbers.as_slice();
        while let [first, ..] = rest {
            let follows = |(at, number): (usize, &u32)| *number as usize == *first as usize + at;
            let many = rest
                .iter()
                .enumerate()
                .take_while(|it| follows(*it))
                .count();
            let many = if many < 3 { 1 } else { many };
            parts.push(match many {
                1 => name(*first),
                _ => format!("{} to {}", name(*first), name(rest[many - 1])),
            });
            rest = &rest[many..];
        }
        and(&parts)
    }
}

/// `a, b and c`.
fn and(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// `every minute`, `every 5 minutes`.
fn every(step: u32, unit: &str) -> String {
    match step {
        1 => format!("every {unit}"),
        _ => format!("every {step} {unit}s"),
    }
}

impl Cron {
    /// What it means.
    pub(crate) fn words(&self) -> String {
        let mut said = vec![self.time_words()];
        said.extend(self.day_words());
        let months = Part {
            bits: self.months,
            least: 1,
            most: 12,
        };
        if !months.is_all() {
            let name = |number: u32| MONTHS[number as usize - 1].to_owned();
            said.push(format!("in {}", months.listed(name)));
        }
        said.join(", ")
    }

    fn time_words(&self) -> String {
        let part = |bits, most| Part {
            bits,
            least: 0,
            most,
        };
        let (seconds, minutes) = (part(self.seconds, 59), part(self.minutes, 59));
        let hours = part(self.hours, 23);
        let number = |number: u32| number.to_string();
        let at_zero = seconds.numbers() == [0];
        if at_zero && minutes.numbers().len() * hours.numbers().len() <= TIMES {
            let mut times = Vec::new();
            for hour in hours.numbers() {
                let minutes = minutes.numbers().into_iter();
                times.extend(minutes.map(|minute| format!("{hour:02}:{minute:02}")));
            }
            return format!("at {}", and(&times));
        }
        let in_hours = match (hours.is_all(), hours.step()) {
            (true, _) => String::new(),
            (_, Some(step)) => format!(", {}", every(step, "hour")),
            _ => format!(", from {}", hours.listed(|hour| format!("{hour:02}:00"))),
        };
        let minute_words = match (minutes.step(), minutes.numbers().as_slice()) {
            (Some(step), _) => every(step, "minute"),
            (None, [0]) if hours.is_all() => return said_seconds(&seconds, "every hour".into()),
            (None, _) => format!("at minute {}", minutes.listed(number)),
        };
        let minute_words = match (minutes.step(), hours.is_all()) {
            (None, true) => format!("{minute_words} of every hour"),
            _ => minute_words,
        };
        if at_zero {
            return minute_words + &in_hours;
        }
        said_seconds(&seconds, minute_words) + &in_hours
    }

    fn day_words(&self) -> Option<String> {
        let weekdays = Part {
            bits: self.weekdays,
            least: 0,
            most: 6,
        };
        let days = Part {
            bits: self.days,
            least: 1,
            most: 31,
        };
        let mut of_month = Vec::new();
        if self.days != 0 {
            of_month.push(format!("day {}", days.listed(|day| day.to_string())));
        }
        if self.last_day {
            of_month.push("the last day".to_owned());
        }
        let of_month = format!("on {} of the month", and(&of_month));
        let of_week = weekdays.listed(|day| WEEKDAYS[day as usize].to_owned());
        match (
            self.any_day || days.is_all(),
            self.any_weekday || weekdays.is_all(),
        ) {
            (true, true) => None,
            (false, true) => Some(of_month),
            (true, false) => Some(of_week),
            // Either will do, as in every cron.
            (false, false) => Some(format!("{of_month}, and every {of_week}")),
        }
    }
}

fn said_seconds(seconds: &Part, rest: String) -> String {
    match (seconds.step(), seconds.numbers().as_slice()) {
        (_, [0]) => rest,
        (Some(step), _) if rest == "every minute" => every(step, "second"),
        (Some(step), _) => format!("{} {rest}", every(step, "second")),
        _ => {
            let listed = seconds.listed(|second| second.to_string());
            format!("at second {listed} of {rest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fa_20_a_cron_expression_is_told_in_words() {
        for (expression, words) in [
            ("* * * * *", "every minute"),
            ("*/5 * * * *", "every 5 minutes"),
            ("30 3 * * mon-fri", "at 03:30, Monday to Friday"),
            ("0 9,17 * * *", "at 09:00 and 17:00"),
            ("0 * * * *", "every hour"),
            ("@hourly", "every hour"),
            ("15 * * * *", "at minute 15 of every hour"),
            ("0,20 * * * *", "at minute 0 and 20 of every hour"),
            (
                "*/15 9-17 * * 1-5",
                "every 15 minutes, from 09:00 to 17:00, Monday to Friday",
            ),
            ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00"),
            ("0 */2 * * *", "at minute 0, every 2 hours"),
            ("@daily", "at 00:00"),
            ("@weekly", "at 00:00, Sunday"),
            ("@yearly", "at 00:00, on day 1 of the month, in January"),
            ("0 0 L * *", "at 00:00, on the last day of the month"),
            (
                "0 0 1,15,L jan,jul *",
                "at 00:00, on day 1 and 15 and the last day of the month, in January and July",
            ),
            (
                "0 0 1 * fri",
                "at 00:00, on day 1 of the month, and every Friday",
            ),
            ("*/10 * * * * *", "every 10 seconds"),
            ("* * * * * *", "every second"),
            ("30 * * * * *", "at second 30 of every minute"),
            ("0 12 * * 6,7", "at 12:00, Sunday and Saturday"),
        ] {
            let cron = Cron::parse(expression).expect("an expression");
            assert_eq!(cron.words(), words, "{expression}");
        }
    }
}
