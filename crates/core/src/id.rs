//! Dense ordinals: they index vectors, and they break ties so that a replay is exact.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// The id as an index into a dense vector.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A model that is being served.
    ModelId, u32, "m"
);
id!(
    /// A whole GPU, a share of one, or an emulated one. It runs one batch at a time.
    ExecutorId, u32, "x"
);
id!(
    /// Executors of one class are equally fast: they share one profile per model.
    ClassId, u16, "c"
);
id!(
    /// Requests of one kind run alike: those of one application, or of one range of input sizes. A
    /// model whose run time does not depend on the input has one kind.
    KindId, u16, "k"
);
id!(
    /// One request, unique while it is in the system.
    RequestId, u64, "r"
);
