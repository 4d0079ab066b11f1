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
pub(super) struct CudaError {
    what: &'static str,
    code: CUresult,
}

impl CudaError {
    /// Whether nothing can run in this process any more: an error of the device, of the driver or of a kernel, which stays. Not one about what was
    /// asked for.
    pub(super) fn is_fatal(&self) -> bool {
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

type Result<T> = std::result::Result<T, CudaError>;

fn check(what: &'static str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError { what, code }),
    }
}

/// Starts the driver; the error says what is missing.
pub(super) fn start() -> std::result::Result<(), String> {
    // SAFETY: it looks for the library, and does no more than load it.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no CUDA driver (libcuda.so) on this machine".to_owned());
    }
    // SAFETY: the first call that is made.
    check("the driver cannot start", unsafe { sys::cuInit(0) }).map_err(|error| error.to_string())
}

/// How many GPUs there are.
pub(super) fn count() -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: it writes one number.
    check("count", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(count.max(0) as usize)
}

/// A GPU with its primary context, which ONNX Runtime uses too. Kept until the process ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: the driver locks.
unsafe impl Sync for Device {}

impl Device {
    /// The `index`-th.
    pub(super) fn open(index: usize) -> Result<Self> {
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

    /// The context of what runs on all of it.
    pub(super) fn context(&self) -> Context {
        Context { handle: self.context, stays: true }
    }

    /// Every thread that calls the driver does this first.
    pub(super) fn set_current(&self) -> Result<()> {
        // SAFETY: the context stays until the process ends.
        check("set context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Its name.
    pub(super) fn name(&self) -> Result<String> {
        let mut text = [0; 128];
        // SAFETY: it writes at most as many bytes, with a zero at the end.
        let code =
            unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, self.device) };
        check("name", code)?;
        // SAFETY: there is a zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Bytes that are free, and all.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        check("memory", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// All its multiprocessors.
    fn whole(&self) -> Result<sys::CUdevResource> {
        // SAFETY: a structure of numbers; zero is one that is not valid yet.
        let mut whole: sys::CUdevResource = unsafe { std::mem::zeroed() };
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: it writes one structure.
        let code = unsafe { sys::cuDeviceGetDevResource(self.device, &raw mut whole, kind) };
        check("multiprocessors", code)?;
        Ok(whole)
    }

    /// How many multiprocessors it has, and how many of them at a time can be cut off.
    pub(super) fn multiprocessors(&self) -> Result<(u32, u32)> {
        let whole = self.whole()?;
        // SAFETY: it was asked for multiprocessors, so that is what the union has.
        let sm = unsafe { whole.__bindgen_anon_1.sm };
        // Older drivers do not say it; on Hopper it is 8, and less before.
        let step = if sm.smCoscheduledAlignment == 0 { 8 } else { sm.smCoscheduledAlignment };
        Ok((sm.smCount, step))
    }

    /// A context of the `part`-th share, where a GPU is cut into shares of so many multiprocessors.
    ///
    /// Each is cut off from what those before it left, so that shares of one cut have none in common, whoever makes them.
    pub(super) fn share(&self, counts: &[u32], part: usize) -> Result<Green> {
        let mut rest = self.whole()?;
        // SAFETY: a structure of numbers; zero is one that is not valid yet.
        let (mut mine, mut left) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for &count in &counts[..=part] {
            // SAFETY: it was asked for multiprocessors.
            let all = unsafe { rest.__bindgen_anon_1.sm.smCount };
            if count >= all {
                mine = rest;
                break;
            }
            let mut groups: c_uint = 1;
            // SAFETY: there is room for one group, and it is told so.
            let code = unsafe {
                sys::cuDevSmResourceSplitByCount(
                    &raw mut mine,
                    &raw mut groups,
                    &raw const rest,
                    &raw mut left,
                    0,
                    count,
                )
            };
            check("cut off a share", code)?;
            rest = left;
        }
        let (mut description, mut green) = (null_mut(), null_mut());
        let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as c_uint;
        // SAFETY: it reads one resource.
        let code =
            unsafe { sys::cuDevResourceGenerateDesc(&raw mut description, &raw mut mine, 1) };
        check("describe a share", code)?;
        // SAFETY: it writes one handle.
        let code =
            unsafe { sys::cuGreenCtxCreate(&raw mut green, description, self.device, flags) };
        check("make a share", code)?;
        let mut context = null_mut();
        // SAFETY: the handle was just made.
        check("context of a share", unsafe { sys::cuCtxFromGreenCtx(&raw mut context, green) })?;
        Ok(Green { green, context })
    }
}

/// Where kernels run: on the whole GPU, or on a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    handle: sys::CUcontext,
    /// It stays until the process ends, so that another never has the same handle.
    stays: bool,
}

/// A share of a GPU: what runs in its context has its multiprocessors only.
#[derive(Debug)]
pub(super) struct Green {
    green: sys::CUgreenCtx,
    context: sys::CUcontext,
}

// SAFETY: as with contexts.
unsafe impl Send for Green {}
// SAFETY: as with contexts.
unsafe impl Sync for Green {}

impl Green {
    /// The context of what runs here.
    pub(super) fn context(&self) -> Context {
        Context { handle: self.context, stays: false }
    }

    /// A stream whose work runs on this share.
    pub(super) fn stream(&self) -> Result<Stream> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the share is there for as long as this value.
        let code = unsafe { sys::cuGreenCtxStreamCreate(&raw mut stream, self.green, flags, 0) };
        check("stream of a share", code)?;
        Ok(Stream(stream))
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once. Whoever has work on it keeps it.
        unsafe { sys::cuGreenCtxDestroy(self.green) };
    }
}

/// Work in order.
#[derive(Debug)]
pub(super) struct Stream(pub(super) sys::CUstream);

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new() -> Result<Self> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: it writes one handle.
        check("stream", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self(stream))
    }

    /// Waits until all its work has ended.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the stream is there.
        check("run", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    /// What comes later waits for the event.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both are there.
        check("wait for an event", unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) })
    }

    /// The event happens when all that came before has ended.
    pub(super) fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both are there.
        check("record an event", unsafe { sys::cuEventRecord(event.0, self.0) })
    }

    /// Copies between any two places, pinned memory of the host included.
    pub(super) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: whoever asks keeps both places, and they are as long.
        check("copy", unsafe { sys::cuMemcpyAsync(to, from, bytes, self.0) })
    }

    pub(super) fn launch(&self, exec: &Exec) -> Result<()> {
        // SAFETY: both are there; what the graph touches is kept by whoever captured it.
        check("run a graph", unsafe { sys::cuGraphLaunch(exec.0, self.0) })
    }

    /// What `work` begins on this stream becomes a graph, and does not run.
    pub(super) fn capture<E: From<CudaError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        // Work of other threads goes on meanwhile, and so may allocations.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is there.
        check("begin to capture", unsafe { sys::cuStreamBeginCapture_v2(self.0, mode) })?;
        let done = work();
        let mut graph = null_mut();
        // SAFETY: the capture was begun above; it must be ended whatever became of it.
        let ended = check("capture", unsafe { sys::cuStreamEndCapture(self.0, &raw mut graph) });
        let graph = (!graph.is_null()).then_some(Graph(graph));
        done?;
        ended?;
        Ok(graph.expect("a capture that ended well has a graph"))
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
pub(super) struct Event(sys::CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new() -> Result<Self> {
        let mut event = null_mut();
        // SAFETY: it writes one handle.
        check("event", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
        Ok(Self(event))
    }

    /// Waits until it has happened.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the event is there.
        check("run", unsafe { sys::cuEventSynchronize(self.0) })
    }

    /// Milliseconds from another event to this one; both have happened.
    pub(super) fn since(&self, start: &Self) -> Result<f32> {
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
pub(super) struct Buffer {
    pub(super) place: u64,
}

impl Buffer {
    /// Zeros: what was there before could be numbers that a model takes for places in a table.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let mut place = 0;
        // SAFETY: it writes one address.
        check("memory", unsafe { sys::cuMemAlloc_v2(&raw mut place, bytes.max(1)) })?;
        let buffer = Self { place };
        // SAFETY: it was just allocated, and is as long.
        check("clear memory", unsafe { sys::cuMemsetD8_v2(place, 0, bytes.max(1)) })?;
        // Streams of ours do not wait for the one on which that is done.
        // SAFETY: the null stream is always there.
        check("clear memory", unsafe { sys::cuStreamSynchronize(null_mut()) })?;
        Ok(buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated once and is freed once; the driver waits for work that uses it.
        unsafe { sys::cuMemFree_v2(self.place) };
    }
}

/// Memory of the host that the GPU reads and writes by itself.
#[derive(Debug)]
pub(super) struct Pinned(*mut c_void);

// SAFETY: an address, which is only given back.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins memory that lives longer than this value.
    pub(super) fn new(place: *mut c_void, bytes: usize) -> Result<Self> {
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

/// What was captured.
#[derive(Debug)]
pub(super) struct Graph(sys::CUgraph);

// SAFETY: a graph is used by one thread at a time, any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// Made ready to run in a context: that of a share, or of the whole GPU. What it was made ready for before must be gone: a graph that
    /// allocates memory, as some of cuBLAS' do, can neither be copied nor be ready twice.
    ///
    /// A kernel runs in the context that its stream had when it was captured. Given another context, it does the same work there, at the
    /// price of about 20 microseconds a kernel.
    pub(super) fn ready(&mut self, context: Context) -> Result<Exec> {
        for node in self.nodes()? {
            let Some(mut kernel) = kernel_of(node)? else { continue };
            if context.stays && kernel.ctx == context.handle {
                continue;
            }
            // With the function, the context would be that of the function.
            kernel.func = null_mut();
            kernel.ctx = context.handle;
            // SAFETY: all but the context is what the node has; its parameters are copied.
            let code = unsafe { sys::cuGraphKernelNodeSetParams_v2(node, &raw const kernel) };
            check("move a kernel to a share", code)?;
        }
        let mut exec = null_mut();
        // SAFETY: the graph is there.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, self.0, 0) };
        check("make a graph ready", code)?;
        Ok(Exec(exec))
    }

    /// Whether it has kernels that were compiled while the program ran, and may be unloaded while it runs.
    ///
    /// cuDNN compiles some for the very shapes that it is asked for, and unloads them with the plan that they are of. The libraries of what is
    /// compiled like that hold a kernel or two; those of programs hold many.
    pub(super) fn is_compiled_on_the_way(&self) -> Result<bool> {
        for node in self.nodes()? {
            let Some(kernel) =
                kernel_of(node)?.map(|kernel| kernel.kern).filter(|kern| !kern.is_null())
            else {
                continue;
            };
            let (mut library, mut kernels) = (null_mut(), 0);
            // SAFETY: the kernel was captured just now, by somebody who still has it loaded.
            check("library", unsafe { sys::cuKernelGetLibrary(&raw mut library, kernel) })?;
            // SAFETY: the library is that of a kernel.
            check("kernels", unsafe { sys::cuLibraryGetKernelCount(&raw mut kernels, library) })?;
            if kernels <= FEW_KERNELS {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn nodes(&self) -> Result<Vec<sys::CUgraphNode>> {
        let mut count = 0;
        // SAFETY: without room for nodes, it writes their number.
        check("nodes", unsafe { sys::cuGraphGetNodes(self.0, null_mut(), &raw mut count) })?;
        let mut nodes = vec![null_mut(); count];
        // SAFETY: there is room for as many.
        check("nodes", unsafe {
            sys::cuGraphGetNodes(self.0, nodes.as_mut_ptr(), &raw mut count)
        })?;
        nodes.truncate(count);
        Ok(nodes)
    }
}

/// A library with so many kernels at most was compiled for somebody in particular.
const FEW_KERNELS: c_uint = 2;

/// What a node runs, if it is a kernel.
fn kernel_of(node: sys::CUgraphNode) -> Result<Option<sys::CUDA_KERNEL_NODE_PARAMS>> {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node is one of a graph's.
    check("node", unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) })?;
    if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
        return Ok(None);
    }
    // SAFETY: a structure of numbers and pointers, which is filled below.
    let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    // SAFETY: it is a node of a kernel.
    check("kernel", unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &raw mut kernel) })?;
    Ok(Some(kernel))
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once.
        unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// A graph that is ready to run.
#[derive(Debug)]
pub(super) struct Exec(sys::CUgraphExec);

// SAFETY: it is launched by one thread at a time, any thread.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once; whoever drops it has waited for its last run.
        unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// A kernel of our own.
#[derive(Debug)]
pub(super) struct Kernel(sys::CUfunction);

// SAFETY: it is a handle, which the driver locks.
unsafe impl Send for Kernel {}

impl Kernel {
    /// From PTX, which the driver compiles. It stays until the process ends.
    pub(super) fn new(ptx: &CStr, name: &CStr) -> Result<Self> {
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
    pub(super) fn launch<const N: usize>(
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
