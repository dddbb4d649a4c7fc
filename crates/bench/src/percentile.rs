//! Percentiles by nearest rank: always a value that was measured, never one in between.

/// Measured values in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Sorted(values)
    }

    /// The smallest value that at least `percent` of all values do not exceed. Nothing if there
    /// are no values; a percentage outside 0 to 100 counts as the nearer end.
    ///
    /// ```
    /// use roundel_bench::percentile::Sorted;
    ///
    /// let latencies = Sorted::new(vec![40.0, 10.0, 30.0, 20.0]);
    /// assert_eq!(latencies.percentile(50.0), Some(20.0));
    /// assert_eq!(latencies.percentile(99.0), Some(40.0));
    /// ```
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        // Multiplied first: 7 % of 100 values is rank 7, while 0.07 * 100.0 exceeds 7.
        let rank = (percent * self.0.len() as f64 / 100.0).ceil();
        let index = (rank as usize).saturating_sub(1);
        Some(self.0[index.min(last)])
    }
}

/// The median; 0 if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let middle = Sorted::new(values.to_vec()).percentile(50.0);
    middle.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(count: u32) -> Sorted {
        Sorted::new((1..=count).rev().map(f64::from).collect())
    }

    #[test]
    fn no_values_have_no_percentile() {
        assert_eq!(Sorted::new(Vec::new()).percentile(50.0), None);
    }

    #[test]
    fn one_value_is_every_percentile() {
        for percent in [0.0, 1.0, 50.0, 100.0] {
            assert_eq!(up_to(1).percentile(percent), Some(1.0));
        }
    }

    #[test]
    fn each_whole_percentage_of_a_hundred_values_is_its_own_rank() {
        let values = up_to(100);
        for percent in 1..=100 {
            let percent = f64::from(percent);
            assert_eq!(values.percentile(percent), Some(percent));
        }
    }

    #[test]
    fn a_rank_between_two_values_is_rounded_up() {
        let cases = [
            (5.0, 15.0),
            (30.0, 20.0),
            (40.0, 20.0),
            (50.0, 35.0),
            (99.0, 50.0),
        ];
        let values = Sorted::new(vec![15.0, 20.0, 35.0, 40.0, 50.0]);
        for (percent, expected) in cases {
            assert_eq!(
                values.percentile(percent),
                Some(expected),
                "{percent} percent"
            );
        }
    }

    #[test]
    fn fractions_of_a_percent_reach_the_tail() {
        assert_eq!(up_to(1000).percentile(99.9), Some(999.0));
        assert_eq!(up_to(10_000).percentile(99.99), Some(9_999.0));
    }

    #[test]
    fn percentages_outside_the_range_count_as_its_ends() {
        assert_eq!(up_to(9).percentile(-1.0), Some(1.0));
        assert_eq!(up_to(9).percentile(101.0), Some(9.0));
    }
}
