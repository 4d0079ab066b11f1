//! How run times are spread, as one word of a recording, and back: to the last bit, so that a
//! replay decides the same.
//!
//! `spread:` and then, between colons: the largest batch; the growth; the ends of the grid; the
//! mixture; each kind's share and distribution. Floats are the hexadecimal digits of their bits.

use std::fmt::Write as _;

use fermata_core::{BINS, Distribution, Grid, Growth, KindId, Spread};

const WORD: &str = "spread:";
/// Digits of a single float.
const DIGITS: usize = 8;
/// The largest batch that any profile may have.
const BATCH_MAX: usize = 4096;

/// Appends a spread.
pub(crate) fn write(spread: &Spread, out: &mut String) {
    let Growth { fixed, base, each } = *spread.growth();
    let (low, high) = spread.grid().ends();
    let bits = |value: f64| value.to_bits();
    let _ = write!(out, "{WORD}{}:", spread.max_batch());
    let _ = write!(out, "{:016x}{:016x}{:016x}:", bits(fixed), bits(base), bits(each));
    let _ = write!(out, "{:08x}{:08x}:", low.to_bits(), high.to_bits());
    write_floats(spread.mixture().ended(), out);
    for kind in (0..spread.kinds() as u16).map(KindId) {
        out.push(':');
        write_floats(&[spread.share(kind)], out);
        write_floats(spread.alone(kind).ended(), out);
    }
}

fn write_floats(values: &[f32], out: &mut String) {
    for value in values {
        let _ = write!(out, "{:08x}", value.to_bits());
    }
}

/// Reads one; `None` if the word is something else, an error if it is broken.
pub(crate) fn read(word: &str) -> Option<Result<Spread, String>> {
    let rest = word.strip_prefix(WORD)?;
    Some(read_parts(rest).ok_or_else(|| {
        let start: String = rest.chars().take(40).collect();
        format!("'{WORD}{start}...' does not tell how run times are spread")
    }))
}

fn read_parts(text: &str) -> Option<Spread> {
    let mut parts = text.split(':');
    let max_batch: usize = parts.next()?.parse().ok().filter(|&size| size <= BATCH_MAX)?;
    let growth = parts.next()?;
    let double = |at: usize| {
        let digits = growth.get(at * 2 * DIGITS..(at + 1) * 2 * DIGITS)?;
        u64::from_str_radix(digits, 16).ok().map(f64::from_bits)
    };
    let growth = (growth.len() == 6 * DIGITS).then_some(Growth {
        fixed: double(0)?,
        base: double(1)?,
        each: double(2)?,
    })?;
    let [low, high] = floats(parts.next()?)?;
    let grid = Grid::from_ends(low, high)?;
    let mixture = Distribution::from_ended(floats(parts.next()?)?)?;
    let kind = |text: &str| {
        let [share] = floats(text.get(..DIGITS)?)?;
        Some((share, Distribution::from_ended(floats(text.get(DIGITS..)?)?)?))
    };
    // No more than the file has: a line is its length.
    let kinds: Option<Vec<(f32, Distribution)>> = parts.map(kind).collect();
    Spread::from_parts(grid, growth, kinds?, mixture, max_batch)
}

fn floats<const N: usize>(text: &str) -> Option<[f32; N]> {
    const { assert!(N <= BINS + 1) };
    if text.len() != N * DIGITS {
        return None;
    }
    let mut values = [0.0; N];
    for (at, value) in values.iter_mut().enumerate() {
        let digits = text.get(at * DIGITS..(at + 1) * DIGITS)?;
        *value = f32::from_bits(u32::from_str_radix(digits, 16).ok()?);
    }
    Some(values)
}

/// A profile for tests: two kinds that were measured, and one that was not.
#[cfg(test)]
pub(crate) fn sample() -> fermata_core::Profile {
    use fermata_core::{Profile, Span};
    let ms = |list: &[f64]| list.iter().map(|&ms| Span::from_ms(ms)).collect();
    let measured = vec![(0.3, ms(&[1.0, 1.3])), (0.7, ms(&[2.0, 3.1, 4.7])), (0.0, Vec::new())];
    let growth = Growth { fixed: 1e5, base: 0.8, each: 0.2 };
    Profile::spread_out(Spread::new(&measured, growth, 4).unwrap().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let profile = sample();
        let mut word = String::new();
        write(profile.spread().unwrap(), &mut word);
        assert!(!word.contains(' '));
        assert_eq!(&read(&word).unwrap().unwrap(), &**profile.spread().unwrap());
        assert!(read("6000000,7000000").is_none());
        for broken in [
            word.replace(":4:", ":0:"),
            word.replace(":4:", ":99999:"),
            word[..word.len() - 1].to_owned(),
            word.replace("3f800000", "7fc00000"),
            format!("{word}:"),
            WORD.to_owned(),
            format!("{WORD}4:\u{fc}"),
        ] {
            assert_ne!(broken, word);
            let said = read(&broken).unwrap().unwrap_err();
            assert!(said.contains("does not tell") && said.len() < 120, "{said}");
        }
    }
}
