//! How long a client will wait, by the three ways in which it can say so.

use std::time::Duration;

/// The header, and the gRPC metadata, that holds the time in milliseconds.
pub(crate) const HEADER: &str = "x-request-deadline-ms";

/// The shorter of two, where either may be unlimited.
pub(crate) fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// A wait in whole seconds, as `Retry-After` has them; never too short.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The time of the `timeout` parameter, in microseconds, where zero is none.
pub(crate) fn from_parameter(micros: u64) -> Option<Duration> {
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// The time of the header `x-request-deadline-ms`.
pub(crate) fn from_header(value: &[u8]) -> Result<Duration, String> {
    let text = std::str::from_utf8(value).unwrap_or("");
    let millis = text.trim().parse::<f64>().ok().filter(|millis| *millis > 0.0);
    millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok()).ok_or_else(|| {
        format!("header {HEADER} is '{text}', expected a number of milliseconds above 0")
    })
}

/// The time of the metadata `grpc-timeout`: up to eight digits and a unit.
pub(crate) fn from_grpc(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count.checked_mul(3600)?),
        b'M' => Duration::from_secs(count.checked_mul(60)?),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_read() {
        assert_eq!(from_parameter(0), None);
        assert_eq!(from_parameter(1500), Some(Duration::from_micros(1500)));
        assert_eq!(from_header(b"25"), Ok(Duration::from_millis(25)));
        assert_eq!(from_header(b"0.5"), Ok(Duration::from_micros(500)));
        assert_eq!(from_grpc(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(from_grpc(b"3H"), Some(Duration::from_secs(10_800)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "soon", "-1", "0", "NaN", "inf", "1e300"] {
            assert!(from_header(text.as_bytes()).unwrap_err().contains(HEADER), "{text}");
        }
        for text in ["", "m", "10", "10x", "99999999999999999999H", "18446744073709551615H"] {
            assert_eq!(from_grpc(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_sooner_counts() {
        let (short, long) = (Some(Duration::from_millis(1)), Some(Duration::from_millis(2)));
        assert_eq!(sooner(long, short), short);
        assert_eq!(sooner(None, long), long);
        assert_eq!(sooner(None, None), None);
    }
}
