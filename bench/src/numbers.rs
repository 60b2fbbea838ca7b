//! Medians and percentiles.

use std::time::Duration;

use anyhow::{Result, bail};

/// A set of measured values, sorted.
#[derive(Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Result<Sample> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            bail!("nothing was measured");
        }
        values.sort_by(f64::total_cmp);
        Ok(Sample(values))
    }

    /// In milliseconds.
    pub(crate) fn of_durations(values: &[Duration]) -> Result<Sample> {
        Sample::new(values.iter().map(|value| value.as_secs_f64() * 1e3).collect())
    }

    /// The least value that `percent` of all do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).clamp(1, self.0.len());
        self.0[rank - 1]
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn max(&self) -> f64 {
        self.percentile(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sample = Sample::new((1..=50).rev().map(f64::from).collect()).unwrap();
        assert_eq!(sample.median(), 25.0);
        assert_eq!(sample.percentile(99), 50.0);
        assert_eq!(sample.percentile(90), 45.0);
        assert_eq!(sample.max(), 50.0);
        let one = Sample::of_durations(&[Duration::from_micros(1500)]).unwrap();
        assert_eq!((one.median(), one.max()), (1.5, 1.5));
    }

    #[test]
    fn nothing_measured_is_an_error() {
        assert!(Sample::new(Vec::new()).is_err());
        assert!(Sample::new(vec![f64::NAN]).is_err());
    }
}
