//! The part of CUDA's driver that this crate uses, as values that release their handles when they
//! are dropped. The library is loaded by `start`, not before.
//!
//! The driver checks its handles, which are numbers. It cannot check that memory outlives the work
//! that uses it: the code that begins work keeps the memory until the work has ended.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult};

use crate::EngineError;

/// An error of the driver, with the call that failed.
#[derive(Clone, Debug)]
pub(crate) struct CudaError {
    what: &'static str,
    code: CUresult,
}

impl CudaError {
    /// The driver supports the call, but this device does not.
    pub(super) fn unavailable(what: &'static str) -> Self {
        Self { what, code: CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION }
    }

    /// Whether the error is [`CudaError::unavailable`].
    pub(super) fn is_unavailable(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    }

    /// Whether nothing can run in this process any more: a lasting error of the device, the driver
    /// or a kernel, as opposed to a bad argument.
    pub(crate) fn is_fatal(&self) -> bool {
        let code = self.code as u32;
        matches!(code, 4 | 46 | 101 | 201 | 214 | 220 | 226 | 700..=720 | 805..=811 | 999)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = std::ptr::null();
        // SAFETY: the call writes null, or a pointer to a constant of the library.
        unsafe { sys::cuGetErrorName(self.code, &raw mut name) };
        let name = match name.is_null() {
            true => "an unknown error".into(),
            // SAFETY: the pointer is to a constant of the library.
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

/// The result of a call of the driver.
pub(super) type Result<T> = std::result::Result<T, CudaError>;

pub(super) fn check(what: &'static str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError { what, code }),
    }
}

/// Loads and starts the driver; the error says what is missing.
pub(crate) fn start() -> std::result::Result<(), String> {
    // SAFETY: the call looks for the library and loads it, nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no CUDA driver (libcuda.so) on this machine".to_owned());
    }
    // SAFETY: this is the first call of the library.
    check("the driver cannot start", unsafe { sys::cuInit(0) }).map_err(|error| error.to_string())
}

/// How many GPUs there are.
pub(crate) fn count() -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: the call writes one number.
    check("count", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(count.max(0) as usize)
}

/// A GPU with its primary context, which ONNX Runtime uses too. It exists until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: any thread may use a context.
unsafe impl Send for Device {}
// SAFETY: the driver locks.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the GPU with this index.
    pub(crate) fn open(index: usize) -> Result<Self> {
        let mut device = 0;
        let mut context = null_mut();
        // SAFETY: each call writes one value.
        unsafe {
            check("device", sys::cuDeviceGet(&raw mut device, index as c_int))?;
            check("context", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        }
        let device = Self { device, context };
        device.set_current()?;
        Ok(device)
    }

    /// The driver's handle of it.
    pub(super) fn handle(&self) -> sys::CUdevice {
        self.device
    }

    /// The context of work on the whole GPU.
    pub(crate) fn context(&self) -> Context {
        Context { handle: self.context, stays: true }
    }

    /// Makes its context the current one. Each thread calls this before any other call of the
    /// driver.
    pub(crate) fn set_current(&self) -> Result<()> {
        // SAFETY: the context exists until the process ends.
        check("set context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Its name.
    pub(crate) fn name(&self) -> Result<String> {
        let mut text = [0; 128];
        // SAFETY: the call writes at most that many bytes, and a zero at the end.
        let code =
            unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, self.device) };
        check("name", code)?;
        // SAFETY: the text ends with a zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Bytes of memory: the free ones, and all.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two numbers.
        check("memory", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// All its multiprocessors.
    pub(super) fn whole(&self) -> Result<sys::CUdevResource> {
        // SAFETY: a structure of numbers; all zeros is an invalid resource, which the call
        // overwrites.
        let mut whole: sys::CUdevResource = unsafe { std::mem::zeroed() };
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: the call writes one structure.
        let code = unsafe { sys::cuDeviceGetDevResource(self.device, &raw mut whole, kind) };
        check("multiprocessors", code)?;
        Ok(whole)
    }

    /// How many multiprocessors it has, and in which steps they can be split off.
    pub(crate) fn multiprocessors(&self) -> Result<(u32, u32)> {
        let whole = self.whole()?;
        // SAFETY: the call asked for multiprocessors, so the union holds those.
        let sm = unsafe { whole.__bindgen_anon_1.sm };
        // Older drivers do not report it. It is 8 on Hopper, and less on earlier GPUs.
        let step = if sm.smCoscheduledAlignment == 0 { 8 } else { sm.smCoscheduledAlignment };
        Ok((sm.smCount, step))
    }
}

/// The context that kernels run in: that of the whole GPU, or that of a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(super) handle: sys::CUcontext,
    /// Whether it exists until the process ends, so that no later context has the same handle.
    pub(super) stays: bool,
}

/// A queue of work that runs in order.
#[derive(Debug)]
pub(crate) struct Stream(pub(crate) sys::CUstream);

// SAFETY: any thread may use a stream, and the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new() -> Result<Self> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the call writes one handle.
        check("stream", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self(stream))
    }

    /// Waits until all its work has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream exists.
        check("run", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    /// Makes later work on this stream wait for an event.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event exist.
        check("wait for an event", unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) })
    }

    /// Makes an event happen when all earlier work on this stream has ended.
    pub(crate) fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event exist.
        check("record an event", unsafe { sys::cuEventRecord(event.0, self.0) })
    }

    /// Copies between any two addresses, on the GPU or in pinned memory of the host.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller keeps the memory at both addresses, and it is long enough.
        check("copy", unsafe { sys::cuMemcpyAsync(to, from, bytes, self.0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once; the driver waits for its work.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// A moment on a stream.
#[derive(Debug)]
pub(crate) struct Event(sys::CUevent);

// SAFETY: any thread may use an event.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new() -> Result<Self> {
        let mut event = null_mut();
        // SAFETY: the call writes one handle.
        check("event", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
        Ok(Self(event))
    }

    /// Waits until it has happened.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event exists.
        check("run", unsafe { sys::cuEventSynchronize(self.0) })
    }

    /// Milliseconds from another event to this one; both have happened.
    pub(crate) fn since(&self, start: &Self) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: the call writes one number.
        check("time", unsafe { sys::cuEventElapsedTime_v2(&raw mut ms, start.0, self.0) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Memory of the GPU.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
}

impl Buffer {
    /// Allocates memory and fills it with zeros. Leftover data could be numbers that a model uses
    /// as indices into a table.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: the call writes one address.
        check("memory", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(1)) })?;
        let buffer = Self { address };
        // SAFETY: the memory was just allocated, with that many bytes.
        check("clear memory", unsafe { sys::cuMemsetD8_v2(address, 0, bytes.max(1)) })?;
        // Streams of this crate do not wait for the null stream, on which the zeros are written.
        // SAFETY: the null stream always exists.
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

/// Memory of the host that the GPU reads and writes directly.
#[derive(Debug)]
pub(crate) struct Pinned(*mut c_void);

// SAFETY: the value holds an address and only passes it back to the driver.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins memory. The caller keeps it for longer than this value.
    pub(crate) fn new(place: *mut c_void, bytes: usize) -> Result<Self> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the caller keeps the memory.
        check("pin memory", unsafe { sys::cuMemHostRegister_v2(place, bytes, flags) })?;
        Ok(Self(place))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory was registered once.
        unsafe { sys::cuMemHostUnregister(self.0) };
    }
}

/// A kernel that this crate wrote.
#[derive(Debug)]
pub(crate) struct Kernel(sys::CUfunction);

// SAFETY: it is a handle, and the driver locks.
unsafe impl Send for Kernel {}

impl Kernel {
    /// Compiles a kernel from PTX. It stays loaded until the process ends.
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

    /// Launches it with arguments of eight bytes each.
    pub(crate) fn launch<const N: usize>(
        &self,
        stream: &Stream,
        (blocks, threads): (u32, u32),
        arguments: &[u64; N],
    ) -> Result<()> {
        let mut places =
            arguments.each_ref().map(|argument| std::ptr::from_ref(argument).cast_mut().cast());
        // SAFETY: the driver copies the arguments. The code that has the PTX passes arguments that
        // fit it.
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
