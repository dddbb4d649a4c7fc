//! The only source of chance in a schedule: same seed, same numbers (splitmix64).

/// From one number to the next.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded generator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Passes over so many numbers, as if they had been drawn.
    pub(crate) fn skip(&mut self, numbers: u64) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(numbers));
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        Random::scaled(self.next(), limit)
    }

    /// A number below this one, out of the upper half of what was drawn.
    pub(crate) fn scaled(drawn: u64, limit: usize) -> usize {
        let scaled = (drawn >> 32) * limit as u64;
        usize::try_from(scaled >> 32).expect("below the limit")
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn id(&mut self) -> uuid::Uuid {
        uuid::Uuid::from_u64_pair(self.next(), self.next())
    }
}
