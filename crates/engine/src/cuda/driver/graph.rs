//! Captured CUDA graphs, and their executable form in one context.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::handles::{Context, CudaError, Result, Stream, check};

/// A captured graph.
#[derive(Debug)]
pub(crate) struct Graph(sys::CUgraph);

// SAFETY: one thread at a time uses a graph, and any thread may.
unsafe impl Send for Graph {}

impl Graph {
    /// Records the work that `work` begins on a stream as a graph. The work does not run.
    pub(crate) fn capture<E: From<CudaError>>(
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        // Other threads keep working during the capture, and may allocate memory.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream exists.
        check("begin to capture", unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) })?;
        let done = work();
        let mut graph = null_mut();
        // SAFETY: the capture began above, and must end whether `work` succeeded or not.
        let ended = check("capture", unsafe { sys::cuStreamEndCapture(stream.0, &raw mut graph) });
        let graph = (!graph.is_null()).then_some(Self(graph));
        done?;
        ended?;
        Ok(graph.expect("a capture that ended well has a graph"))
    }

    /// Makes the graph executable in a context: that of a share, or that of the whole GPU. An
    /// earlier executable form must have been dropped: a graph that allocates memory, as some of
    /// cuBLAS do, can neither be copied nor be executable twice.
    ///
    /// A kernel runs in the context that its stream had during the capture. In another context it
    /// does the same work, at the price of about 20 microseconds per kernel.
    pub(crate) fn ready(&mut self, context: Context) -> Result<Exec> {
        for node in self.nodes()? {
            let Some(mut kernel) = kernel_of(node)? else { continue };
            if context.stays && kernel.ctx == context.handle {
                continue;
            }
            // With a function set, the driver would take the context from the function.
            kernel.func = null_mut();
            kernel.ctx = context.handle;
            // SAFETY: everything but the context is what the node had, and the driver copies it.
            let code = unsafe { sys::cuGraphKernelNodeSetParams_v2(node, &raw const kernel) };
            check("move a kernel to a share", code)?;
        }
        let mut exec = null_mut();
        // SAFETY: the graph exists.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, self.0, 0) };
        check("make a graph ready", code)?;
        Ok(Exec(exec))
    }

    /// The addresses of those kernels whose library holds hardly any other kernel.
    ///
    /// cuDNN compiles some kernels for the exact shapes of a run, each into a library of its own,
    /// and unloads them together with the plan that uses them. Some kernels that ship with cuDNN or
    /// cuBLAS are alone in a library too, but stay loaded.
    pub(crate) fn kernels_alone(&self) -> Result<BTreeSet<usize>> {
        let mut alone = BTreeSet::new();
        for node in self.nodes()? {
            let Some(kernel) =
                kernel_of(node)?.map(|kernel| kernel.kern).filter(|kern| !kern.is_null())
            else {
                continue;
            };
            let (mut library, mut kernels) = (null_mut(), 0);
            // SAFETY: the kernel was just captured, and the session that loaded it still exists.
            check("library", unsafe { sys::cuKernelGetLibrary(&raw mut library, kernel) })?;
            // SAFETY: the library is the one that holds the kernel.
            check("kernels", unsafe { sys::cuLibraryGetKernelCount(&raw mut kernels, library) })?;
            if kernels <= FEW_KERNELS {
                alone.insert(kernel as usize);
            }
        }
        Ok(alone)
    }

    fn nodes(&self) -> Result<Vec<sys::CUgraphNode>> {
        let mut count = 0;
        // SAFETY: without room for nodes, the call only writes their number.
        check("nodes", unsafe { sys::cuGraphGetNodes(self.0, null_mut(), &raw mut count) })?;
        let mut nodes = vec![null_mut(); count];
        // SAFETY: there is room for `count` nodes.
        check("nodes", unsafe {
            sys::cuGraphGetNodes(self.0, nodes.as_mut_ptr(), &raw mut count)
        })?;
        nodes.truncate(count);
        Ok(nodes)
    }
}

/// A library with at most this many kernels may have been compiled for one shape.
const FEW_KERNELS: c_uint = 2;

/// The parameters of a kernel node; `None` for any other node.
fn kernel_of(node: sys::CUgraphNode) -> Result<Option<sys::CUDA_KERNEL_NODE_PARAMS>> {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node belongs to a graph.
    check("node", unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) })?;
    if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
        return Ok(None);
    }
    // SAFETY: a structure of numbers and pointers, which the next call fills.
    let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    // SAFETY: the node is a kernel node.
    check("kernel", unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &raw mut kernel) })?;
    Ok(Some(kernel))
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph was made once and is destroyed once.
        unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// A graph in its executable form.
#[derive(Debug)]
pub(crate) struct Exec(sys::CUgraphExec);

// SAFETY: one thread at a time launches it, and any thread may.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    /// Begins a run of the graph on a stream.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both exist, and the owner of the capture keeps the memory that the graph uses.
        check("run a graph", unsafe { sys::cuGraphLaunch(self.0, stream.0) })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once; its owner has waited for its last run.
        unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}
