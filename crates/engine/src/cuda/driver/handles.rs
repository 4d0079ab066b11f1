//! The part of CUDA's driver that is used, as values that give back what they hold. Nothing of it is loaded before it is asked for.
//!
//! Handles are numbers that the driver checks; what it cannot check is that memory lives as long as work that was begun with it.
//! Whoever begins work keeps both.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult};

use crate::EngineError;

/// What the driver said.
#[derive(Clone, Debug)]
pub(crate) struct CudaError {
    what: &'static str,
    code: CUresult,
}

impl CudaError {
    /// The driver could do it, but not with this device.
    pub(super) fn unavailable(what: &'static str) -> Self {
        Self { what, code: CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION }
    }

    /// Whether it is that.
    pub(super) fn is_unavailable(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    }

    /// Whether nothing can run in this process any more: an error of the device, of the driver or of a kernel, which stays. Not one about what was
    /// asked for.
    pub(crate) fn is_fatal(&self) -> bool {
        let code = self.code as u32;
        matches!(code, 4 | 46 | 101 | 201 | 214 | 220 | 226 | 700..=720 | 805..=811 | 999)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = std::ptr::null();
        // SAFETY: it writes a pointer to a constant of the library, or null.
        unsafe { sys::cuGetErrorName(self.code, &raw mut name) };
        let name = match name.is_null() {
            true => "an unknown error".into(),
            // SAFETY: it is a constant of the library.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        };
        write!(f, "CUDA: {}: {name}", self.what)
    }
}

impl From<CudaError> for EngineError {
    fn from(error: CudaError) -> Self {
        Self::Run(error.to_string())
    }
}

/// What a call of the driver gives.
pub(super) type Result<T> = std::result::Result<T, CudaError>;

pub(super) fn check(what: &'static str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError { what, code }),
    }
}

/// Starts the driver; the error says what is missing.
pub(crate) fn start() -> std::result::Result<(), String> {
    // SAFETY: it looks for the library, and does no more than load it.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no CUDA driver (libcuda.so) on this machine".to_owned());
    }
    // SAFETY: the first call that is made.
    check("the driver cannot start", unsafe { sys::cuInit(0) }).map_err(|error| error.to_string())
}

/// How many GPUs there are.
pub(crate) fn count() -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: it writes one number.
    check("count", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(count.max(0) as usize)
}

/// A GPU with its primary context, which ONNX Runtime uses too. Kept until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: the driver locks.
unsafe impl Sync for Device {}

impl Device {
    /// The `index`-th.
    pub(crate) fn open(index: usize) -> Result<Self> {
        let mut device = 0;
        let mut context = null_mut();
        // SAFETY: each writes one value.
        unsafe {
            check("device", sys::cuDeviceGet(&raw mut device, index as c_int))?;
            check("context", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        }
        let device = Self { device, context };
        device.set_current()?;
        Ok(device)
    }

    /// As the driver knows it.
    pub(super) fn handle(&self) -> sys::CUdevice {
        self.device
    }

    /// The context of what runs on all of it.
    pub(crate) fn context(&self) -> Context {
        Context { handle: self.context, stays: true }
    }

    /// Every thread that calls the driver does this first.
    pub(crate) fn set_current(&self) -> Result<()> {
        // SAFETY: the context stays until the process ends.
        check("set context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Its name.
    pub(crate) fn name(&self) -> Result<String> {
        let mut text = [0; 128];
        // SAFETY: it writes at most as many bytes, with a zero at the end.
        let code =
            unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, self.device) };
        check("name", code)?;
        // SAFETY: there is a zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Bytes that are free, and all.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        check("memory", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// All its multiprocessors.
    pub(super) fn whole(&self) -> Result<sys::CUdevResource> {
        // SAFETY: a structure of numbers; zero is one that is not valid yet.
        let mut whole: sys::CUdevResource = unsafe { std::mem::zeroed() };
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: it writes one structure.
        let code = unsafe { sys::cuDeviceGetDevResource(self.device, &raw mut whole, kind) };
        check("multiprocessors", code)?;
        Ok(whole)
    }

    /// How many multiprocessors it has, and how many of them at a time can be cut off.
    pub(crate) fn multiprocessors(&self) -> Result<(u32, u32)> {
        let whole = self.whole()?;
        // SAFETY: it was asked for multiprocessors, so that is what the union has.
        let sm = unsafe { whole.__bindgen_anon_1.sm };
        // Older drivers do not say it; on Hopper it is 8, and less before.
        let step = if sm.smCoscheduledAlignment == 0 { 8 } else { sm.smCoscheduledAlignment };
        Ok((sm.smCount, step))
    }
}

/// Where kernels run: on the whole GPU, or on a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(super) handle: sys::CUcontext,
    /// It stays until the process ends, so that another never has the same handle.
    pub(super) stays: bool,
}

/// Work in order.
#[derive(Debug)]
pub(crate) struct Stream(pub(crate) sys::CUstream);

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new() -> Result<Self> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: it writes one handle.
        check("stream", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self(stream))
    }

    /// Waits until all its work has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream is there.
        check("run", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    /// What comes later waits for the event.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both are there.
        check("wait for an event", unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) })
    }

    /// The event happens when all that came before has ended.
    pub(crate) fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both are there.
        check("record an event", unsafe { sys::cuEventRecord(event.0, self.0) })
    }

    /// Copies between any two places, pinned memory of the host included.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: whoever asks keeps both places, and they are as long.
        check("copy", unsafe { sys::cuMemcpyAsync(to, from, bytes, self.0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once; the driver waits for its work.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Something that happens on a stream.
#[derive(Debug)]
pub(crate) struct Event(sys::CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new() -> Result<Self> {
        let mut event = null_mut();
        // SAFETY: it writes one handle.
        check("event", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
        Ok(Self(event))
    }

    /// Waits until it has happened.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event is there.
        check("run", unsafe { sys::cuEventSynchronize(self.0) })
    }

    /// Milliseconds from another event to this one; both have happened.
    pub(crate) fn since(&self, start: &Self) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: it writes one number.
        check("time", unsafe { sys::cuEventElapsedTime_v2(&raw mut ms, start.0, self.0) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Memory of the GPU.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
}

impl Buffer {
    /// Zeros: what was there before could be numbers that a model takes for places in a table.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: it writes one address.
        check("memory", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(1)) })?;
        let buffer = Self { address };
        // SAFETY: it was just allocated, and is as long.
        check("clear memory", unsafe { sys::cuMemsetD8_v2(address, 0, bytes.max(1)) })?;
        // Streams of ours do not wait for the one on which that is done.
        // SAFETY: the null stream is always there.
        check("clear memory", unsafe { sys::cuStreamSynchronize(null_mut()) })?;
        Ok(buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated once and is freed once; the driver waits for work that uses it.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Memory of the host that the GPU reads and writes by itself.
#[derive(Debug)]
pub(crate) struct Pinned(*mut c_void);

// SAFETY: an address, which is only given back.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins memory that lives longer than this value.
    pub(crate) fn new(place: *mut c_void, bytes: usize) -> Result<Self> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the caller keeps the memory.
        check("pin memory", unsafe { sys::cuMemHostRegister_v2(place, bytes, flags) })?;
        Ok(Self(place))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was registered once.
        unsafe { sys::cuMemHostUnregister(self.0) };
    }
}

/// A kernel of our own.
#[derive(Debug)]
pub(crate) struct Kernel(sys::CUfunction);

// SAFETY: it is a handle, which the driver locks.
unsafe impl Send for Kernel {}

impl Kernel {
    /// From PTX, which the driver compiles. It stays until the process ends.
    pub(crate) fn new(ptx: &CStr, name: &CStr) -> Result<Self> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text ends with a zero.
        let code = unsafe { sys::cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()) };
        check("compile a kernel", code)?;
        // SAFETY: the module was just loaded.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
        check("find a kernel", code)?;
        Ok(Self(function))
    }

    /// Begins it, with arguments of eight bytes.
    pub(crate) fn launch<const N: usize>(
        &self,
        stream: &Stream,
        (blocks, threads): (u32, u32),
        arguments: &[u64; N],
    ) -> Result<()> {
        let mut places =
            arguments.each_ref().map(|argument| std::ptr::from_ref(argument).cast_mut().cast());
        // SAFETY: the driver copies the arguments; that they are those of the kernel is for whoever wrote both.
        let code = unsafe {
            sys::cuLaunchKernel(
                self.0,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.0,
                places.as_mut_ptr(),
                null_mut(),
            )
        };
        check("run a kernel", code)
    }
}
