//! A model bound to memory of the GPU: ONNX Runtime reads and writes there, at addresses that stay.

#![expect(unsafe_code, reason = "ONNX Runtime is a C library, and memory of the GPU is not Rust's")]

use std::ffi::CString;
use std::ptr::null_mut;

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{NoSelectedOutputs, RunOptions, Session};
use ort::{AsPointer, Error, sys};

use crate::{DataType, TensorSpec};

/// Inputs and outputs of one batch size. What it is bound to lives longer.
pub(super) struct Binding {
    binding: *mut sys::OrtIoBinding,
    values: Vec<*mut sys::OrtValue>,
}

// SAFETY: it is used by one thread at a time, any thread.
unsafe impl Send for Binding {}

/// A tensor of the model, and where its data lies on the GPU.
pub(super) struct Bound {
    pub(super) spec: TensorSpec,
    pub(super) address: u64,
}

impl Binding {
    /// Binds a session to batches of `size`; `None` for a model without a batch axis.
    pub(super) fn new(
        session: &Session,
        gpu: usize,
        size: Option<usize>,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<Self, Error> {
        let mut binding = null_mut();
        // SAFETY: it writes one handle. The session outlives the binding: whoever has one has both.
        let status =
            unsafe { (ort::api().CreateIoBinding)(session.ptr().cast_mut(), &raw mut binding) };
        // SAFETY: the status is the library's, and nobody else frees it.
        unsafe { Error::result_from_status(status) }?;
        let mut bound = Self { binding, values: Vec::new() };
        let memory = MemoryInfo::new(
            AllocationDevice::CUDA,
            gpu as i32,
            AllocatorType::Device,
            MemoryType::Default,
        )?;
        for (bind, tensors) in [(ort::api().BindInput, inputs), (ort::api().BindOutput, outputs)] {
            for Bound { spec, address } in tensors {
                let shape: Vec<i64> = size
                    .map(|size| size as i64)
                    .into_iter()
                    .chain(spec.shape.iter().copied())
                    .collect();
                let value = bound.value(&memory, *address, spec.datatype, &shape)?;
                let name = CString::new(spec.name.as_str())
                    .map_err(|error| Error::new(error.to_string()))?;
                // SAFETY: all three are there.
                let status = unsafe { bind(bound.binding, name.as_ptr(), value) };
                // SAFETY: the status is the library's, and nobody else frees it.
                unsafe { Error::result_from_status(status) }?;
            }
        }
        Ok(bound)
    }

    fn value(
        &mut self,
        memory: &MemoryInfo<'_>,
        address: u64,
        datatype: DataType,
        shape: &[i64],
    ) -> Result<*const sys::OrtValue, Error> {
        let elements = crate::Tensor::elements(shape).unwrap_or(0);
        let bytes = elements * datatype.size().unwrap_or(0);
        let mut value = null_mut();
        // SAFETY: there are as many bytes at that address of the GPU, for as long as this binding is used.
        let status = unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory.ptr(),
                address as *mut _,
                bytes,
                shape.as_ptr(),
                shape.len(),
                element(datatype),
                &raw mut value,
            )
        };
        // SAFETY: the status is the library's, and nobody else frees it.
        unsafe { Error::result_from_status(status) }?;
        self.values.push(value);
        Ok(value)
    }

    /// Begins a run, on the stream of the session.
    pub(super) fn run(
        &self,
        session: &mut Session,
        options: &RunOptions<NoSelectedOutputs>,
    ) -> Result<(), Error> {
        let run = ort::api().RunWithBinding;
        // SAFETY: it was made for this session, and what it is bound to is there.
        let status = unsafe { run(session.ptr_mut(), options.ptr(), self.binding) };
        // SAFETY: the status is the library's, and nobody else frees it.
        unsafe { Error::result_from_status(status) }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // SAFETY: each was made once and is released once; the values are not used by the binding any more.
        unsafe {
            (ort::api().ReleaseIoBinding)(self.binding);
            self.values.iter().for_each(|&value| (ort::api().ReleaseValue)(value));
        }
    }
}

fn element(datatype: DataType) -> sys::ONNXTensorElementDataType {
    use sys::ONNXTensorElementDataType as Element;
    match datatype {
        DataType::Bool => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DataType::Uint8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::Uint16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DataType::Uint32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DataType::Uint64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DataType::Int8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::Int16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DataType::Int32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::Int64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::Fp16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::Fp32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::Fp64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DataType::Bf16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DataType::Bytes => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
    }
}
