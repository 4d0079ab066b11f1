//! Makes the types of the gRPC protocol, without `protoc`, and keeps its descriptors: the text
//! format of `config.pbtxt` is read with them.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["grpc_service.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Raw tensors are then slices of the received message, not copies.
    tonic_prost_build::configure().build_client(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
