//! What was captured, and what is ready to run of it, in which context.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::handles::{Context, CudaError, Result, Stream, check};

/// What was captured.
#[derive(Debug)]
pub(crate) struct Graph(sys::CUgraph);

// SAFETY: a graph is used by one thread at a time, any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// What `work` begins on a stream becomes a graph, and does not run.
    pub(crate) fn capture<E: From<CudaError>>(
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        // Work of other threads goes on meanwhile, and so may allocations.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is there.
        check("begin to capture", unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) })?;
        let done = work();
        let mut graph = null_mut();
        // SAFETY: the capture was begun above; it must be ended whatever became of it.
        let ended = check("capture", unsafe { sys::cuStreamEndCapture(stream.0, &raw mut graph) });
        let graph = (!graph.is_null()).then_some(Self(graph));
        done?;
        ended?;
        Ok(graph.expect("a capture that ended well has a graph"))
    }

    /// Made ready to run in a context: that of a share, or of the whole GPU. What it was made ready for before must be gone: a graph that
    /// allocates memory, as some of cuBLAS' do, can neither be copied nor be ready twice.
    ///
    /// A kernel runs in the context that its stream had when it was captured. Given another context, it does the same work there, at the
    /// price of about 20 microseconds a kernel.
    pub(crate) fn ready(&mut self, context: Context) -> Result<Exec> {
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

    /// Its kernels whose library holds hardly any others, by their address.
    ///
    /// cuDNN compiles some for the very shapes that it is asked for, and unloads them with the plan that they are of: they are alone in what is made for them.
    /// So are some that come with cuDNN or cuBLAS, and stay.
    pub(crate) fn kernels_alone(&self) -> Result<BTreeSet<usize>> {
        let mut alone = BTreeSet::new();
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
                alone.insert(kernel as usize);
            }
        }
        Ok(alone)
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

/// A library with so many kernels at most may have been compiled for somebody in particular.
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
pub(crate) struct Exec(sys::CUgraphExec);

// SAFETY: it is launched by one thread at a time, any thread.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    /// Begins it on a stream.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are there; what the graph touches is kept by whoever captured it.
        check("run a graph", unsafe { sys::cuGraphLaunch(self.0, stream.0) })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it is made once and destroyed once; whoever drops it has waited for its last run.
        unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}
