//! A random mix as a line of the file in which the measured mixes are kept.

use crate::store::Row;
use crate::trials::mixes::{BestRival, Goodput, Mix};

/// What is known of a random mix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MixRow {
    pub(super) executors: usize,
    /// The best of the other policies.
    pub(super) best: BestRival,
    /// The goodput of the default policy; `None` where it is to be measured again.
    pub(super) fermata: Option<f64>,
    /// The mix in one line.
    pub(super) mix: String,
}

impl MixRow {
    /// The columns, with the key.
    pub(super) const HEAD: &'static str = "seed,executors,best,by,busy,fermata,mix";

    /// Refuses a row that was measured on another mix than this one, which its seed gives.
    pub(super) fn check(&self, drawn: &Mix) -> Result<(), String> {
        let mix = drawn.name();
        if self.mix == mix && self.executors == drawn.executors {
            return Ok(());
        }
        Err(format!("is not the mix of seed {}, which is '{mix}'", drawn.seed))
    }
}

/// A rate or a share as it is stored. Rows are rounded when they are measured, so that `--report`
/// repeats the report of the run that measured them.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Row for MixRow {
    /// The seed.
    type Key = u64;
    const WHAT: &'static str = "a mix and its goodputs";

    fn read(cells: &str) -> Option<Self> {
        let mut cells = cells.splitn(6, ',');
        let executors = cells.next()?.parse().ok()?;
        let rate = cells.next()?.parse().ok()?;
        let name = cells.next()?.to_owned();
        let busy = cells.next()?.parse().ok()?;
        let fermata = match cells.next()? {
            "" => None,
            rate => Some(rate.parse().ok()?),
        };
        let mix = cells.next()?.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\"");
        let best = BestRival { goodput: Goodput { rate, busy }, name };
        Some(Self { executors, best, fermata, mix })
    }

    fn cells(&self) -> String {
        let Self { executors, best, fermata, mix } = self;
        let Goodput { rate, busy } = best.goodput;
        let fermata = fermata.map_or(String::new(), |rate| format!("{rate:.3}"));
        let mix = mix.replace('"', "\"\"");
        format!("{executors},{rate:.3},{},{busy:.3},{fermata},\"{mix}\"", best.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::mixes::{ZooModel, draw};
    use crate::trials::symphony::zoo_a100;

    fn row(mix: &str, fermata: Option<f64>) -> MixRow {
        let goodput = Goodput { rate: 15_843.123, busy: 0.636 };
        let best = BestRival { goodput, name: "timeout:5%".to_owned() };
        MixRow { executors: 4, best, fermata, mix: mix.to_owned() }
    }

    #[test]
    fn a_row_that_was_written_is_read_as_it_was() {
        let mix = "bert_short 12.0 ms 17 %, lenet 2.5 ms 83 % on 4, gamma:0.2";
        let known = row(mix, Some(15_282.201));
        let cells = format!("4,15843.123,timeout:5%,0.636,15282.201,\"{mix}\"");
        assert_eq!(known.cells(), cells);
        let unknown = row("a \"fast\" one, b", None);
        let quoted = r#"4,15843.123,timeout:5%,0.636,,"a ""fast"" one, b""#;
        assert_eq!(unknown.cells(), quoted);
        for row in [known, unknown] {
            assert_eq!(MixRow::read(&row.cells()), Some(row));
        }
    }

    #[test]
    fn broken_cells_are_not_a_row() {
        for cells in [
            "",
            "4,1.0,eager,0.5,1.0",
            "4,1.0,eager,0.5,1.0,a on 4",
            "four,1.0,eager,0.5,1.0,\"a\"",
            "4,x,eager,0.5,1.0,\"a\"",
            "4,1.0,eager,0.5,x,\"a\"",
        ] {
            assert_eq!(MixRow::read(cells), None, "{cells}");
        }
    }

    #[test]
    fn a_row_belongs_to_the_mix_that_its_seed_gives() {
        let zoos = vec![zoo_a100().iter().map(ZooModel::linear).collect()];
        let drawn = draw(&zoos, 3);
        let mut row = row(&drawn.name(), None);
        row.executors = drawn.executors;
        assert_eq!(row.check(&drawn), Ok(()));
        row.executors += 1;
        assert!(row.check(&drawn).is_err());
        let reason = row.check(&draw(&zoos, 4)).unwrap_err();
        assert!(reason.starts_with("is not the mix of seed 4, which is '"), "{reason}");
    }
}
