//! The factors of `--what-if`, as they are written, and what was found for each.

use serde::Serialize;

/// Factors of the file's objectives and rates; each objective is planned with each rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    pub(super) slo: Vec<f64>,
    pub(super) rate: Vec<f64>,
}

/// As many values, if it is not said how many.
const STEPS: usize = 6;
const STEPS_MAX: usize = 1000;
/// Factors are from its inverse to this.
const FACTOR_MAX: f64 = 1e4;

/// One point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) slo: f64,
    pub(super) rate: f64,
    pub(super) gpus: usize,
    pub(super) lower_bound: usize,
    pub(super) cost: Option<f64>,
    /// Whether there may be so many.
    pub(super) within_limits: bool,
    /// The demands that are not met.
    pub(super) infeasible: Vec<String>,
    /// Only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_time: Option<bool>,
    /// How many GPUs were estimated before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) estimate: Option<usize>,
}

impl Sweep {
    /// Reads `slo=0.8..1.5:4,rate=2`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut slo, mut rate) = (None, None);
        for part in text.split(',') {
            let (key, values) =
                part.split_once('=').ok_or_else(|| format!("'{part}' has no '='"))?;
            let place = match key.trim() {
                "slo" => &mut slo,
                "rate" => &mut rate,
                other => return Err(format!("'{other}' is not slo or rate")),
            };
            if place.replace(factors(values.trim())?).is_some() {
                return Err(format!("'{}' is there twice", key.trim()));
            }
        }
        let usual = || vec![1.0];
        Ok(Self { slo: slo.unwrap_or_else(usual), rate: rate.unwrap_or_else(usual) })
    }
}

/// `2`, `0.5..2` or `0.5..2:4`.
fn factors(text: &str) -> Result<Vec<f64>, String> {
    let factor = |text: &str| match text.parse::<f64>() {
        Ok(factor) if (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) => Ok(factor),
        _ => Err(format!("'{text}' is not a factor from {} to {FACTOR_MAX}", 1.0 / FACTOR_MAX)),
    };
    let Some((low, rest)) = text.split_once("..") else { return Ok(vec![factor(text)?]) };
    let (high, steps) = match rest.split_once(':') {
        None => (rest, STEPS),
        Some((high, steps)) => match steps.parse() {
            Ok(steps) if (2..=STEPS_MAX).contains(&steps) => (high, steps),
            _ => return Err(format!("'{steps}' is not a number of steps from 2 to {STEPS_MAX}")),
        },
    };
    let (low, high) = (factor(low)?, factor(high)?);
    let step = (high - low) / (steps - 1) as f64;
    // As a person would write them: no digits that only a machine sees.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    Ok((0..steps).map(|at| rounded(low + step * at as f64)).collect())
}

/// The values of one side of a sweep, in its order.
pub(super) fn values(points: &[Point], of: impl Fn(&Point) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::new();
    for point in points {
        if !values.contains(&of(point)) {
            values.push(of(point));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        let sweep = Sweep::parse("slo=1..2:3,rate=0.5").unwrap();
        assert_eq!(sweep, Sweep { slo: vec![1.0, 1.5, 2.0], rate: vec![0.5] });
        assert_eq!(Sweep::parse("rate=0.5..2").unwrap().rate, [0.5, 0.8, 1.1, 1.4, 1.7, 2.0]);
        for (text, words) in [
            ("slo", "no '='"),
            ("price=2", "'price' is not slo or rate"),
            ("slo=0", "'0' is not a factor"),
            ("slo=1..x", "'x' is not a factor"),
            ("slo=1..2:1", "'1' is not a number of steps"),
            ("slo=1,slo=2", "'slo' is there twice"),
        ] {
            let reason = Sweep::parse(text).unwrap_err();
            assert!(reason.contains(words), "{text}: {reason}");
        }
    }
}
