//! Converts between this crate's tensors and ONNX Runtime's. Only this file reads and writes
//! through the library's pointers.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use half::{bf16, f16};
use ort::memory::{Allocator, MemoryInfo};
use ort::session::{SessionInputValue, SharedSessionInner};
use ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, Shape, TensorElementType,
    TensorRefMut,
};
use ort::{AsPointer, Error};

use crate::{DataType, Tensor};

/// The protocol's type for an element type, if it has one.
pub(super) fn datatype(element: TensorElementType) -> Option<DataType> {
    Some(match element {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float16 => DataType::Fp16,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::String => DataType::Bytes,
        _ => return None,
    })
}

/// Lends numbers to the library.
///
/// # Panics
///
/// If the data is not aligned for its type, is not as long as the shape says, or is of strings.
pub(super) fn lend<'a>(
    datatype: DataType,
    shape: &[i64],
    data: &'a [u8],
) -> Result<SessionInputValue<'a>, Error> {
    match datatype {
        DataType::Bool => lend_as::<bool>(shape, data),
        DataType::Uint8 => lend_as::<u8>(shape, data),
        DataType::Uint16 => lend_as::<u16>(shape, data),
        DataType::Uint32 => lend_as::<u32>(shape, data),
        DataType::Uint64 => lend_as::<u64>(shape, data),
        DataType::Int8 => lend_as::<i8>(shape, data),
        DataType::Int16 => lend_as::<i16>(shape, data),
        DataType::Int32 => lend_as::<i32>(shape, data),
        DataType::Int64 => lend_as::<i64>(shape, data),
        DataType::Fp16 => lend_as::<f16>(shape, data),
        DataType::Fp32 => lend_as::<f32>(shape, data),
        DataType::Fp64 => lend_as::<f64>(shape, data),
        DataType::Bf16 => lend_as::<bf16>(shape, data),
        DataType::Bytes => unreachable!("strings are copied, not lent"),
    }
}

#[expect(unsafe_code, reason = "the `ort` crate lends typed slices only, and we have bytes")]
fn lend_as<'a, T: PrimitiveTensorElementType + Debug>(
    shape: &[i64],
    data: &'a [u8],
) -> Result<SessionInputValue<'a>, Error> {
    let length = Tensor::elements(shape).and_then(|count| count.checked_mul(size_of::<T>()));
    assert_eq!(length, Some(data.len()), "the data is as long as the shape says");
    assert!(data.as_ptr().cast::<T>().is_aligned(), "the data is aligned");
    let (start, shape) = (data.as_ptr().cast_mut().cast(), Shape::new(shape.iter().copied()));
    // SAFETY: the memory is on the CPU, aligned and long enough, as was just asserted, and borrowed
    // for as long as the value lives. The library does not write to inputs.
    let view = unsafe { TensorRefMut::<'a, T>::from_raw(MemoryInfo::default(), start, shape)? };
    Ok(view.into())
}

/// Copies strings of any bytes into a tensor of the library.
///
/// # Panics
///
/// If the number of strings is not the one that the shape says.
#[expect(unsafe_code, reason = "the `ort` crate takes strings of UTF-8 without a zero only")]
pub(super) fn strings<'s>(
    shape: &[i64],
    strings: impl Iterator<Item = &'s [u8]>,
) -> Result<SessionInputValue<'static>, Error> {
    let count = Tensor::elements(shape);
    let shape = Shape::new(shape.iter().copied());
    let tensor = DynTensor::new(&Allocator::default(), TensorElementType::String, shape)?;
    let mut filled = 0;
    for string in strings {
        let mut start = std::ptr::null_mut();
        // SAFETY: the tensor is of strings and belongs to this function alone; the library checks
        // the index.
        unsafe {
            let resize = ort::api().GetResizedStringTensorElementBuffer;
            let pointer = tensor.ptr().cast_mut();
            Error::result_from_status(resize(pointer, filled, string.len(), &mut start))?;
        }
        // SAFETY: the library has just made room for that many bytes there.
        unsafe { std::ptr::copy_nonoverlapping(string.as_ptr(), start.cast(), string.len()) };
        filled += 1;
    }
    assert_eq!(Some(filled), count, "there are as many strings as the shape says");
    Ok(tensor.into())
}

/// Takes over an output without copying it: the memory lives as long as any slice of it. `lent` are
/// the inputs. An output that is one of them is copied, because inputs go back to their owner.
pub(super) fn take(
    value: DynValue,
    session: &Arc<SharedSessionInner>,
    lent: &[&[u8]],
) -> Result<Tensor, String> {
    let value = value.downcast::<DynTensorValueType>().map_err(|error| error.to_string())?;
    let datatype = datatype(*value.data_type())
        .ok_or_else(|| format!("elements of {} are not supported", value.data_type()))?;
    if !value.memory_info().is_cpu_accessible() {
        return Err("it is not in the memory of the processor".to_owned());
    }
    let shape = value.shape().to_vec();
    let data = if datatype == DataType::Bytes {
        read_strings(&value)?
    } else {
        let owner = Owner { value, _session: Arc::clone(session) };
        let range = owner.as_ref().as_ptr_range();
        let is_input = |lent: &&[u8]| {
            let lent = lent.as_ptr_range();
            lent.start < range.end && range.start < lent.end
        };
        if lent.iter().any(is_input) {
            Bytes::copy_from_slice(owner.as_ref())
        } else {
            Bytes::from_owner(owner)
        }
    };
    Ok(Tensor { datatype, shape, data })
}

/// An output of numbers in the library's memory.
struct Owner {
    value: DynTensor,
    /// A constant output lies among the weights of the session.
    _session: Arc<SharedSessionInner>,
}

impl AsRef<[u8]> for Owner {
    #[expect(unsafe_code, reason = "the `ort` crate gives typed slices only, and we want bytes")]
    fn as_ref(&self) -> &[u8] {
        let start = self.value.data_ptr().cast::<u8>();
        match self.value.size() {
            // SAFETY: the library has written these bytes, does not touch them again, and frees
            // them with the value, which outlives the slice.
            Some(length) if !start.is_null() => unsafe {
                std::slice::from_raw_parts(start, length)
            },
            _ => &[],
        }
    }
}

/// Copies the strings of an output, each preceded by its length.
#[expect(unsafe_code, reason = "the `ort` crate reads strings of UTF-8 only")]
fn read_strings(value: &DynTensor) -> Result<Bytes, String> {
    let count = Tensor::elements(value.shape()).ok_or("the output's shape is too large")?;
    let mut length = 0;
    let mut offsets = vec![0; count];
    // SAFETY: the tensor is of strings.
    let status = unsafe { (ort::api().GetStringTensorDataLength)(value.ptr(), &mut length) };
    // SAFETY: the library made the status, and nothing else frees it.
    unsafe { Error::result_from_status(status) }.map_err(|error| error.to_string())?;
    let mut text = vec![0_u8; length];
    // SAFETY: the tensor has `count` strings with `length` bytes in all.
    let status = unsafe {
        let read = ort::api().GetStringTensorContent;
        read(value.ptr(), text.as_mut_ptr().cast(), length, offsets.as_mut_ptr(), count)
    };
    // SAFETY: as above.
    unsafe { Error::result_from_status(status) }.map_err(|error| error.to_string())?;

    let mut data = Vec::with_capacity(length + 4 * count);
    let ends = offsets.iter().skip(1).copied().chain([length]);
    for (&start, end) in offsets.iter().zip(ends) {
        let string = &text[start..end];
        let prefix = u32::try_from(string.len()).map_err(|_| "a string is over 4 GiB long")?;
        data.extend_from_slice(&prefix.to_le_bytes());
        data.extend_from_slice(string);
    }
    Ok(data.into())
}
