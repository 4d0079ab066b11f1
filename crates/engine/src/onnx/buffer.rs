//! Gathers the inputs of a batch: one after another, each padded to the longest.
//!
//! Gathering writes each byte that the library reads once. A batch of `k` items with the longest of
//! length `l` costs a copy of the inputs and a fill up to `k l`, which is less than what the
//! library reads, let alone computes.

/// Memory that is reused from batch to batch.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
}

/// The alignment of a gathered input: a line of the cache, which suffices for every type.
const ALIGNMENT: usize = 64;

/// A part of an input, and how many bytes of padding follow it.
pub(super) type Part<'a> = (&'a [u8], usize);

impl Buffer {
    /// Writes the parts one after another, aligned. The padding behind each part repeats `fill`.
    pub(super) fn gather<'a>(
        &mut self,
        parts: impl Iterator<Item = Part<'a>> + Clone,
        fill: &[u8],
    ) -> &[u8] {
        let length = parts.clone().map(|(part, missing)| part.len() + missing).sum::<usize>();
        if self.bytes.len() < length + ALIGNMENT {
            // `resize` would copy what is about to be overwritten.
            self.bytes = vec![0; length + ALIGNMENT];
        }
        let start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        let gathered = &mut self.bytes[start..start + length];
        let mut rest = &mut *gathered;
        for (part, missing) in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            let (behind, after) = after.split_at_mut(missing);
            match fill.iter().all(|&byte| byte == 0) {
                true => behind.fill(0),
                false => {
                    behind.chunks_exact_mut(fill.len()).for_each(|one| one.copy_from_slice(fill))
                }
            }
            rest = after;
        }
        gathered
    }
}

/// How one input of an item lies in memory along its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many sequences there are, each of which is padded.
    times: usize,
    /// Elements of a sequence.
    elements: usize,
    /// Elements of padding behind each sequence.
    missing: usize,
}

impl Layout {
    /// The layout of a tensor of this valid shape, padded to `longest` along an axis.
    pub(super) fn new(shape: &[i64], axis: Option<usize>, longest: usize) -> Self {
        // If a product is too large for a word, another axis is zero, and no data is read at all.
        let product = |axes: &[i64]| {
            axes.iter().fold(1_usize, |product, &axis| product.saturating_mul(axis as usize))
        };
        match axis {
            None => Self { times: 1, elements: product(shape), missing: 0 },
            Some(axis) => {
                let length = shape[axis] as usize;
                let inner = product(&shape[axis + 1..]);
                Self {
                    times: product(&shape[..axis]),
                    elements: length.saturating_mul(inner),
                    missing: (longest - length).saturating_mul(inner),
                }
            }
        }
    }

    /// The parts of a tensor whose elements have `size` bytes.
    pub(super) fn parts(self, data: &[u8], size: usize) -> impl Iterator<Item = Part<'_>> + Clone {
        let Self { times, elements, missing } = self;
        let step = elements * size;
        (0..times).map(move |at| (&data[at * step..(at + 1) * step], missing * size))
    }

    /// The strings of a tensor, padded with empty ones.
    pub(super) fn strings<'a>(
        self,
        strings: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let Self { times, elements, missing } = self;
        let mut strings = strings;
        (0..times).flat_map(move |_| {
            let some: Vec<&[u8]> = strings.by_ref().take(elements).collect();
            some.into_iter().chain(std::iter::repeat_n(&[][..], missing))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_gathers_aligned_and_is_used_again() {
        let mut buffer = Buffer::default();
        let whole = |parts: &'static [&'static [u8]]| parts.iter().map(|&part| (part, 0));
        let gathered = buffer.gather(whole(&[b"abc", b"", b"de"]), &[0]);
        assert_eq!(gathered, b"abcde");
        assert!(gathered.as_ptr().addr().is_multiple_of(ALIGNMENT));
        let place = gathered.as_ptr();
        assert_eq!(buffer.gather(whole(&[b"xy"]), &[0]).as_ptr(), place);
    }

    #[test]
    fn what_is_missing_is_filled_though_the_memory_was_used() {
        let mut buffer = Buffer::default();
        buffer.gather([(&[9_u8; 16][..], 0)].into_iter(), &[0]);
        let parts = [(&b"ab"[..], 4), (&b"cdef"[..], 2)];
        assert_eq!(buffer.gather(parts.into_iter(), &[0, 0]), b"ab\0\0\0\0cdef\0\0");
        assert_eq!(buffer.gather(parts.into_iter(), b"xy"), b"abxyxycdefxy");
    }

    #[test]
    fn each_row_along_the_length_is_padded() {
        // Two channels of three places with two numbers each, padded to four places.
        let layout = Layout::new(&[1, 2, 3, 2], Some(2), 4);
        assert_eq!(layout, Layout { times: 2, elements: 6, missing: 2 });
        let parts: Vec<Part<'_>> = layout.parts(b"abcdefghijkl", 1).collect();
        assert_eq!(parts, [(&b"abcdef"[..], 2), (&b"ghijkl"[..], 2)]);
        let words = [&b"a"[..], b"b", b"c", b"d"];
        let layout = Layout::new(&[1, 2, 2], Some(2), 3);
        let padded: Vec<&[u8]> = layout.strings(words.into_iter()).collect();
        assert_eq!(padded, [&b"a"[..], b"b", b"", b"c", b"d", b""]);
        let whole = Layout::new(&[1, 2, 2], None, 9);
        assert_eq!(whole.parts(b"abcd", 1).collect::<Vec<_>>(), [(&b"abcd"[..], 0)]);
    }
}
