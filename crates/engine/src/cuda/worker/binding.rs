//! A model bound to memory of the GPU: ONNX Runtime reads and writes there, at addresses that stay.

#![expect(unsafe_code, reason = "ONNX Runtime is a C library, and memory of the GPU is not Rust's")]

use std::ffi::CString;
use std::ptr::null_mut;

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{NoSelectedOutputs, RunOptions, Session};
use ort::{AsPointer, Error, sys};

use crate::{DataType, TensorSpec};

/// The inputs and outputs of one batch size. The owner keeps the memory that they are bound to.
pub(super) struct Binding {
    binding: *mut sys::OrtIoBinding,
    values: Vec<*mut sys::OrtValue>,
}

// SAFETY: one thread at a time uses it, and any thread may.
unsafe impl Send for Binding {}

/// A tensor of the model, and the address of its data on the GPU.
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
        // SAFETY: the call writes one handle. The owner of a binding has its session too, and drops
        // it later.
        let status =
            unsafe { (ort::api().CreateIoBinding)(session.ptr().cast_mut(), &raw mut binding) };
        // SAFETY: the library made the status, and nothing else frees it.
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
                // SAFETY: binding, name and value exist.
                let status = unsafe { bind(bound.binding, name.as_ptr(), value) };
                // SAFETY: the library made the status, and nothing else frees it.
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
        // SAFETY: the GPU has that many bytes at the address, for as long as this binding is used.
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
        // SAFETY: the library made the status, and nothing else frees it.
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
        // SAFETY: the binding was made for this session, and the memory that it is bound to exists.
        let status = unsafe { run(session.ptr_mut(), options.ptr(), self.binding) };
        // SAFETY: the library made the status, and nothing else frees it.
        unsafe { Error::result_from_status(status) }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // SAFETY: each was made once and is released once; the binding no longer uses the values.
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
