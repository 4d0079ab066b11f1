//! Keeps what the shares of a GPU have in common busy: a kernel reads memory that fits into the L2
//! cache, or memory that does not, as fast as its share can.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use crate::Pressure;
use crate::cuda::driver::{Buffer, CudaError, Event, Kernel, Stream};

/// Each thread reads 16 bytes at a time, past the L1 cache, and strides by the number of threads.
/// The sum is stored only if it equals a number that it never equals, so that the compiler cannot
/// remove a read.
const PTX: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry press(.param .u64 from, .param .u64 words, .param .u64 rounds, .param .u64 sink)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<16>;
    ld.param.u64 %d1, [from];
    cvta.to.global.u64 %d1, %d1;
    ld.param.u64 %d2, [words];
    ld.param.u64 %d3, [rounds];
    ld.param.u64 %d4, [sink];
    cvta.to.global.u64 %d4, %d4;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %nctaid.x;
    mul.lo.u32 %r6, %r5, %r2;
    cvt.u64.u32 %d5, %r4;
    cvt.u64.u32 %d6, %r6;
    mov.u32 %r7, 0;
ROUND:
    setp.eq.u64 %p1, %d3, 0;
    @%p1 bra END;
    sub.u64 %d3, %d3, 1;
    mov.u64 %d7, %d5;
WORD:
    setp.ge.u64 %p2, %d7, %d2;
    @%p2 bra ROUND;
    shl.b64 %d8, %d7, 4;
    add.u64 %d9, %d1, %d8;
    ld.global.cg.v4.u32 {%r8, %r9, %r10, %r11}, [%d9];
    add.u32 %r7, %r7, %r8;
    add.u32 %r7, %r7, %r9;
    add.u32 %r7, %r7, %r10;
    add.u32 %r7, %r7, %r11;
    add.u64 %d7, %d7, %d6;
    bra WORD;
END:
    setp.ne.u32 %p3, %r7, 305419896;
    @%p3 bra OUT;
    st.global.u32 [%d4], %r7;
OUT:
    ret;
}";

/// Bytes that a thread reads at a time.
const WORD: u64 = 16;
const THREADS: u32 = 256;
/// As many blocks as can run at once: eight on each multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// How many bytes to read, and how often in one launch. A launch is about 100 microseconds of work
/// on a whole GPU.
fn plan(what: Pressure) -> (u64, u64) {
    match what {
        // A quarter of the L2 cache of an H200, which other shares use too.
        Pressure::L2 => (16 << 20, 32),
        // Many times the size of any cache.
        Pressure::Dram => (1 << 30, 1),
    }
}

/// The kernel with its memory.
#[derive(Debug)]
pub(super) struct PressureKernel {
    kernel: Kernel,
    memory: Buffer,
    sink: Buffer,
    bytes: u64,
    rounds: u64,
}

impl PressureKernel {
    pub(super) fn new(what: Pressure) -> Result<Self, CudaError> {
        let (bytes, rounds) = plan(what);
        let (kernel, memory) = (Kernel::new(PTX, c"press")?, Buffer::new(bytes as usize)?);
        Ok(Self { kernel, memory, sink: Buffer::new(4)?, bytes, rounds })
    }

    /// Runs for about `time`. Returns the bytes read per second.
    pub(super) fn run(
        &self,
        stream: &Stream,
        multiprocessors: u32,
        time: Duration,
    ) -> Result<f64, CudaError> {
        let grid = (multiprocessors * BLOCKS_PER_MULTIPROCESSOR, THREADS);
        let arguments = [self.memory.address, self.bytes / WORD, self.rounds, self.sink.address];
        let (first, last) = (Event::new()?, Event::new()?);
        self.kernel.launch(stream, grid, &arguments)?;
        stream.record(&first)?;
        let began = Instant::now();
        let mut launches = 0_u64;
        while began.elapsed() < time {
            // Four launches at a time keep the device busy, and the last of them ends soon after
            // `time`.
            for _ in 0..4 {
                self.kernel.launch(stream, grid, &arguments)?;
                launches += 1;
            }
            stream.record(&last)?;
            last.wait()?;
        }
        let seconds = f64::from(last.since(&first)?) / 1e3;
        Ok((launches * self.bytes * self.rounds) as f64 / seconds.max(1e-9))
    }
}
