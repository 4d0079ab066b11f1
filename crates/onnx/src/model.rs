//! A network that is whole, and its file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::element::Element;
use crate::proto::{
    GRAPH_TAG, GraphProto, INITIALIZER_TAG, IR_VERSION, ModelProto, OPSET, OperatorSetIdProto,
};
use crate::values::Initializer;

/// A network with its weights: as a rule, since they are drawn only when it is written.
#[derive(Clone, Debug)]
pub struct Model {
    /// All but the weights.
    pub(crate) graph: GraphProto,
    pub(crate) initializers: Vec<Initializer>,
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
    pub(crate) parameters: usize,
    pub(crate) multiply_adds: usize,
    pub(crate) seed: u64,
}

/// An input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// What its elements are.
    pub element: Element,
    /// Its axes without the batch.
    pub shape: Vec<usize>,
}

impl Model {
    /// What goes in.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// What comes out.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// How many numbers training would find. A batch normalisation that was folded into its
    /// convolution counts with one for each channel, where it had two.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Multiply-adds of one request: those of convolutions and products of matrices.
    pub fn multiply_adds(&self) -> usize {
        self.multiply_adds
    }

    /// The bytes of the file.
    pub fn file_bytes(&self) -> usize {
        let graph = self.graph_len();
        self.head().encoded_len() + key_len(GRAPH_TAG) + encoded_len_varint(graph as u64) + graph
    }

    /// Writes the file through a neighbour that is renamed at the end, so that nobody sees half of
    /// it.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let mut name: OsString = file.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let neighbour = file.with_file_name(name);
        let written = File::create(&neighbour)
            .and_then(|out| self.encode(&mut BufWriter::new(out)))
            .and_then(|()| fs::rename(&neighbour, file));
        if written.is_err() {
            // The first error is the one to report, not that there was nothing to clean up.
            let _ = fs::remove_file(&neighbour);
        }
        written
    }

    /// Writes the bytes of the file, a piece at a time.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        let mut buffer = self.head().encode_to_vec();
        announce(GRAPH_TAG, self.graph_len(), &mut buffer);
        self.graph.encode(&mut buffer).expect("a vector grows");
        out.write_all(&buffer)?;
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        for initializer in &self.initializers {
            buffer.clear();
            announce(INITIALIZER_TAG, initializer.encoded_len(), &mut buffer);
            out.write_all(&buffer)?;
            initializer.encode(&mut random, out)?;
        }
        out.flush()
    }

    /// The file without its graph.
    fn head(&self) -> ModelProto {
        ModelProto {
            ir_version: IR_VERSION,
            producer_name: "fermata".to_owned(),
            graph: None,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        }
    }

    /// The bytes of the graph's message with all weights: a message is a list of fields, in any
    /// order, so that the weights may come one by one behind the rest.
    fn graph_len(&self) -> usize {
        let field = |initializer: &Initializer| {
            let bytes = initializer.encoded_len();
            key_len(INITIALIZER_TAG) + encoded_len_varint(bytes as u64) + bytes
        };
        self.graph.encoded_len() + self.initializers.iter().map(field).sum::<usize>()
    }
}

/// Begins a field of so many bytes.
fn announce(tag: u32, bytes: usize, buffer: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(bytes as u64, buffer);
}
