//! Shares of GPUs as the classes of executors by which dispatch knows how fast a model runs.

use fermata_core::ClassId;
use fermata_engine::Gpu;

/// A share, as far as it matters for how fast something runs there: equal shares of equal GPUs are
/// equally fast.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    /// The name of the GPU.
    pub(crate) gpu: String,
    /// How many multiprocessors the share has.
    pub(crate) multiprocessors: u32,
    /// How many the GPU has.
    pub(crate) all: u32,
}

impl Share {
    /// So many multiprocessors of a GPU.
    pub(crate) fn of(gpu: &Gpu, multiprocessors: u32) -> Self {
        Self { gpu: gpu.name.clone(), multiprocessors, all: gpu.multiprocessors }
    }
}

/// The class of each share that there ever was: classes are dense, and a share that comes again has
/// the class that it had.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    shares: Vec<Share>,
}

impl Classes {
    /// The class of a share, which may be a new one.
    pub(crate) fn class(&mut self, share: &Share) -> ClassId {
        let at = self.shares.iter().position(|other| other == share).unwrap_or_else(|| {
            self.shares.push(share.clone());
            self.shares.len() - 1
        });
        ClassId(at as u16)
    }

    /// The share of each class.
    pub(crate) fn shares(&self) -> &[Share] {
        &self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_of_equal_gpus_are_one_class_for_ever() {
        let gpu = |index, name: &str| Gpu {
            index,
            name: name.to_owned(),
            memory: 0,
            multiprocessors: 132,
            step: 8,
        };
        let (first, second, other) = (gpu(0, "H200"), gpu(1, "H200"), gpu(2, "A100"));
        let mut classes = Classes::default();
        let whole = classes.class(&Share::of(&first, 132));
        let half = classes.class(&Share::of(&first, 64));
        assert_eq!(classes.class(&Share::of(&second, 132)), whole);
        assert_ne!(classes.class(&Share::of(&other, 132)), whole);
        assert_ne!(half, whole);
        assert_eq!(classes.class(&Share::of(&second, 64)), half);
        assert_eq!(classes.shares().len(), 3);
    }
}
