//! How long batches take on a share of a GPU, where only the whole GPU was measured.
//!
//! `L(b, p) = beta + (l(b) - beta) / p` for a share `p` of at most one: what grows with the batch
//! is work, which a share does more slowly in proportion; the fixed part `beta` (launches, small
//! kernels that wait for one another) uses a few multiprocessors only, and a share has those too.
//! On an H200, ResNet50 confined to 8 to 132 of its 132 multiprocessors follows this within 5 % at
//! batches of 32, within 23 % at 8 and 19 % at 1 (the test below has the table).

use fermata_core::{Profile, Span};

/// The part of a batch's latency that does not grow with the batch, in nanoseconds: where the line
/// through the first and the last entry of the table meets an empty batch.
pub fn fixed_part(profile: &Profile) -> f64 {
    let last = profile.max_batch();
    if last == 1 {
        // Nothing is known but one batch: all of it may be work.
        return 0.0;
    }
    let first = profile.shortest().0 as f64;
    let slope = (profile.latency(last).0 as f64 - first) / (last - 1) as f64;
    (first - slope).max(0.0)
}

/// The profile of a whole GPU, on `percent` of one, with batches of at most `batch_max`.
pub fn on_share(whole: &Profile, percent: u32, batch_max: usize) -> Profile {
    let (fixed, share) = (fixed_part(whole), f64::from(percent) / 100.0);
    let latency = |batch| {
        let work = (whole.latency(batch).0 as f64 - fixed).max(0.0);
        Span((fixed + work / share).ceil() as u64)
    };
    let sizes = whole.max_batch().min(batch_max).max(1);
    Profile::from_table((1..=sizes).map(latency)).expect("no entry of the whole table is zero")
}

/// The same batches, each so many times as long: what a neighbour or a safety margin does.
pub fn stretched(profile: &Profile, factor: f64, batch_max: usize) -> Profile {
    let sizes = profile.max_batch().min(batch_max).max(1);
    let table = (1..=sizes).map(|batch| stretch(profile.latency(batch), factor));
    Profile::from_table(table).expect("a factor of at least one keeps latencies above zero")
}

/// A latency that is so many times as long, rounded up.
#[inline]
pub(super) fn stretch(span: Span, factor: f64) -> Span {
    if factor == 1.0 {
        return span;
    }
    // The conversion saturates: what cannot be run stays so.
    Span((span.0 as f64 * factor).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ResNet50 in ONNX Runtime on an H200, confined by green contexts: multiprocessors, and
    /// milliseconds at batches of 1, 8 and 32.
    const MEASURED: [(u32, [f64; 3]); 6] = [
        (132, [1.00, 1.24, 3.11]),
        (120, [1.09, 1.34, 3.45]),
        (64, [1.22, 1.88, 5.41]),
        (32, [1.53, 3.13, 9.75]),
        (16, [1.50, 5.47, 18.2]),
        (8, [2.55, 10.3, 35.6]),
    ];

    /// A line from 0.99 ms at no request with 0.066 ms for each.
    fn resnet50() -> Profile {
        let line = (1..=32).map(|batch| Span::from_ms(0.99 + 0.066 * f64::from(batch)));
        Profile::from_table(line).unwrap()
    }

    #[test]
    fn the_fixed_part_of_a_line_is_its_constant() {
        assert!((fixed_part(&resnet50()) - 0.99e6).abs() < 1.0);
        assert_eq!(fixed_part(&Profile::from_table([Span::from_ms(3.0)]).unwrap()), 0.0);
    }

    #[test]
    fn a_whole_gpu_is_a_share_of_a_hundred() {
        let whole = resnet50();
        assert_eq!(on_share(&whole, 100, 32), whole);
        assert_eq!(on_share(&whole, 100, 8).max_batch(), 8);
        assert_eq!(stretched(&whole, 1.0, 32), whole);
    }

    #[test]
    fn the_model_follows_what_was_measured_on_shares_of_an_h200() {
        let model = |sms: u32, batch: u32| 0.99 + 0.066 * f64::from(batch) * 132.0 / f64::from(sms);
        let error = |sms, batch, ms: f64| (model(sms, batch) / ms - 1.0).abs();
        for (sms, [one, eight, most]) in MEASURED {
            assert!(error(sms, 32, most) < 0.05, "{sms} SMs at 32: {}", model(sms, 32));
            assert!(error(sms, 8, eight) < 0.23, "{sms} SMs at 8: {}", model(sms, 8));
            assert!(error(sms, 1, one) < 0.19, "{sms} SMs at 1: {}", model(sms, 1));
        }
    }

    #[test]
    fn shares_of_a_table_are_those_of_the_formula() {
        let whole = resnet50();
        for (percent, batch) in [(20, 1), (50, 8), (80, 32)] {
            let expected = 0.99 + 0.066 * batch as f64 * 100.0 / f64::from(percent);
            let found = on_share(&whole, percent, 32).latency(batch).as_ms();
            assert!((found - expected).abs() < 1e-5, "{found} against {expected}");
        }
    }
}
