//! Random numbers from a seed (SplitMix64).

use std::time::Duration;

use crate::{Context, Deadline, Deadlines, Name, Payload, Rate, RunId, Timestamp};

/// A source of numbers: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// From this seed.
    #[must_use]
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than this.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// One of these, if there is any.
    pub fn one_of<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| self.pick(from))
    }

    /// From a microsecond to more than a lease.
    pub(super) fn span(&mut self) -> Duration {
        match self.below(4) {
            0 => Duration::from_micros(1 + self.below(9)),
            1 => Duration::from_millis(1 + self.below(90)),
            2 => Duration::from_secs(1 + self.below(9)),
            _ => Duration::from_secs(10 + self.below(40)),
        }
    }

    /// Now and then none.
    pub(super) fn rate(&mut self) -> Option<Rate> {
        let (count, per) = (self.below(4) as u32, self.span());
        (!self.one_in(3)).then_some(Rate { count, per })
    }

    pub(super) fn lease(&mut self) -> Duration {
        Duration::from_secs(*self.pick(&[5, 30, 30, 5000]))
    }

    /// Seldom any.
    pub(super) fn deadlines(&mut self, now: Timestamp) -> Deadlines {
        let mut one = || {
            let at = now.after(self.span());
            let set_by = RunId::from_bytes([7; 16]);
            self.one_in(8).then_some(Deadline { at, set_by })
        };
        let (forward, rollback) = (one(), one());
        Deadlines { forward, rollback }
    }

    /// Mostly none.
    pub(super) fn context(&mut self) -> Context {
        let mut context = Context::default();
        if self.one_in(8) {
            context.set(Name::constant("who"), self.patch());
        }
        context
    }

    pub(super) fn patch(&mut self) -> Payload {
        let texts = [
            r#"{"a":1}"#,
            r#"{"a":null,"b":{"c":2}}"#,
            r#"{"b":{"c":null}}"#,
            "7",
        ];
        Payload::parse(self.pick::<&str>(&texts)).expect("JSON")
    }
}
