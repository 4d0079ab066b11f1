//! The gRPC protocol's messages, client and server, made from `proto/` by the build.
#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

tonic::include_proto!("inference");

/// The descriptors of all messages, as a serialized `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
