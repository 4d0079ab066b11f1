//! Shares of a GPU, as they are written: `40,60`.

use super::{InputError, in_one_line};

/// More shares than a GPU could have are slips of the keyboard.
const SHARES_MAX: usize = 64;

/// Whole percents, at most 100 together.
pub fn shares(name: &'static str, text: &str) -> Result<Vec<u32>, InputError> {
    let shown = in_one_line(text);
    let refuse = |reason: String| Err(InputError::Argument { name, reason });
    let percents: Option<Vec<u32>> =
        text.split(',').map(|word| word.trim().trim_end_matches('%').parse().ok()).collect();
    let Some(percents) = percents else {
        return refuse(format!("'{shown}' are not shares in percent, such as 100 or 40,60"));
    };
    if percents.len() > SHARES_MAX {
        return refuse(format!("{} shares are too many for any GPU", percents.len()));
    }
    if percents.contains(&0) {
        return refuse(format!("'{shown}' has a share of 0 %, which runs nothing"));
    }
    let sum = percents.iter().fold(0_u32, |sum, &percent| sum.saturating_add(percent));
    if sum > 100 {
        return refuse(format!("'{shown}' are {sum} % together, and there are 100"));
    }
    Ok(percents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_percents_of_at_most_one_gpu() {
        assert_eq!(shares("S", "100").unwrap(), [100]);
        assert_eq!(shares("S", "40,60").unwrap(), [40, 60]);
        assert_eq!(shares("S", "20%, 30%").unwrap(), [20, 30]);
        for (text, reason) in [
            ("", "are not shares in percent"),
            ("40,", "are not shares in percent"),
            ("half", "'half' are not shares in percent"),
            ("12.5", "are not shares in percent"),
            ("-1", "are not shares in percent"),
            ("0,100", "a share of 0 %"),
            ("60,60", "are 120 % together"),
            ("1,".repeat(99).trim_end_matches(','), "99 shares are too many"),
        ] {
            let error = shares("S", text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
