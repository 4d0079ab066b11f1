//! Cuts a GPU into shares: turns percentages into multiprocessors, which come in steps.

use std::fmt;

/// A GPU cut into shares, each with multiprocessors of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    percents: Vec<u32>,
    /// Multiprocessors of each share, in the order in which they are split off. A whole GPU is one
    /// share with all of them.
    multiprocessors: Vec<u32>,
    all: u32,
}

/// Why a GPU cannot be cut as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutError {
    /// There is no share.
    Empty,
    /// A share of 0 %.
    Zero,
    /// The shares add up to more than 100 %.
    TooMuch(u32),
    /// The shares do not fit, with at least one step for each.
    TooMany {
        /// How many shares were asked for.
        shares: usize,
        /// How many steps the GPU has.
        steps: u32,
    },
}

impl Cut {
    /// Shares of these percentages, of a GPU with `all` multiprocessors that can be split off in
    /// steps of `step`. Each share gets the number of steps nearest to its percentage, and at least
    /// one. If the percentages add up to 100, the last share gets the remainder.
    pub fn new(percents: &[u32], all: u32, step: u32) -> Result<Self, CutError> {
        let sum = percents.iter().fold(0_u32, |sum, &percent| sum.saturating_add(percent));
        if percents.is_empty() {
            return Err(CutError::Empty);
        }
        if percents.contains(&0) {
            return Err(CutError::Zero);
        }
        if sum > 100 {
            return Err(CutError::TooMuch(sum));
        }
        let step = step.max(1);
        let steps = all / step;
        let too_many = CutError::TooMany { shares: percents.len(), steps };
        let mut left = steps;
        let mut multiprocessors = Vec::with_capacity(percents.len());
        for (at, &percent) in percents.iter().enumerate() {
            let behind = (percents.len() - at - 1) as u32;
            let most = left.checked_sub(behind).filter(|&most| most > 0);
            let most = most.ok_or_else(|| too_many.clone())?;
            let wanted = (all * percent + 50 * step) / (100 * step);
            let count = wanted.clamp(1, most);
            left -= count;
            multiprocessors.push(count * step);
        }
        if sum == 100 {
            let others: u32 = multiprocessors[..multiprocessors.len() - 1].iter().sum();
            *multiprocessors.last_mut().expect("there is one") = all - others;
        }
        Ok(Self { percents: percents.to_vec(), multiprocessors, all })
    }

    /// A GPU in one piece.
    pub fn whole(all: u32) -> Self {
        Self { percents: vec![100], multiprocessors: vec![all], all }
    }

    /// Whether the GPU is in one piece.
    pub fn is_whole(&self) -> bool {
        self.multiprocessors == [self.all]
    }

    /// How many shares there are.
    pub fn len(&self) -> usize {
        self.percents.len()
    }

    /// Always false: a cut has at least one share.
    pub fn is_empty(&self) -> bool {
        self.percents.is_empty()
    }

    /// The percentage that was asked for, share by share.
    pub fn percents(&self) -> &[u32] {
        &self.percents
    }

    /// The multiprocessors of each share.
    pub fn multiprocessors(&self) -> &[u32] {
        &self.multiprocessors
    }
}

impl fmt::Display for Cut {
    /// `40,60`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percents: Vec<String> = self.percents.iter().map(u32::to_string).collect();
        f.write_str(&percents.join(","))
    }
}

impl std::error::Error for CutError {}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "there is no share: say 100 for a whole GPU"),
            Self::Zero => write!(f, "a share of 0 % runs nothing"),
            Self::TooMuch(sum) => write!(f, "the shares are {sum} % together, and there are 100"),
            Self::TooMany { shares, steps } => {
                write!(f, "{shares} shares are too many: this GPU can be cut into {steps} at most")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts an H200.
    fn cut(percents: &[u32]) -> Result<Vec<u32>, CutError> {
        Cut::new(percents, 132, 8).map(|cut| cut.multiprocessors().to_vec())
    }

    #[test]
    fn shares_are_whole_steps_and_the_last_has_the_rest() {
        assert_eq!(cut(&[100]).unwrap(), [132]);
        assert_eq!(cut(&[50, 50]).unwrap(), [64, 68]);
        assert_eq!(cut(&[40, 60]).unwrap(), [56, 76]);
        assert_eq!(cut(&[20, 80]).unwrap(), [24, 108]);
        assert_eq!(cut(&[80, 20]).unwrap(), [104, 28]);
    }

    #[test]
    fn what_is_not_asked_for_is_left_over() {
        assert_eq!(cut(&[50]).unwrap(), [64]);
        assert_eq!(cut(&[20, 20]).unwrap(), [24, 24]);
        assert!(!Cut::new(&[50], 132, 8).unwrap().is_whole());
        assert!(Cut::new(&[100], 132, 8).unwrap().is_whole());
        assert_eq!(Cut::new(&[100], 132, 8).unwrap(), Cut::whole(132));
    }

    #[test]
    fn the_smallest_share_is_one_step() {
        assert_eq!(cut(&[1, 99]).unwrap(), [8, 124]);
        assert_eq!(cut(&[99, 1]).unwrap(), [120, 12]);
        assert_eq!(cut(&[6; 16]).unwrap(), [8; 16]);
    }

    #[test]
    fn cuts_that_cannot_be_are_refused() {
        assert_eq!(cut(&[]), Err(CutError::Empty));
        assert_eq!(cut(&[0, 100]), Err(CutError::Zero));
        assert_eq!(cut(&[60, 60]), Err(CutError::TooMuch(120)));
        assert_eq!(cut(&[u32::MAX, 2]), Err(CutError::TooMuch(u32::MAX)));
        assert_eq!(cut(&[5; 17]), Err(CutError::TooMany { shares: 17, steps: 16 }));
    }

    #[test]
    fn every_share_of_any_cut_is_one_step_at_least_and_none_has_more_than_there_is() {
        for all in [16, 108, 132, 148] {
            for percent in 1..=99 {
                let cut = Cut::new(&[percent, 100 - percent], all, 8).unwrap();
                assert!(cut.multiprocessors().iter().all(|&count| count >= 8), "{cut} of {all}");
                assert_eq!(cut.multiprocessors().iter().sum::<u32>(), all);
            }
        }
    }
}
