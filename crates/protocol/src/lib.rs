//! The Open Inference Protocol, as a server and its clients share it: the types of its messages and
//! their descriptors. There is no client, no server and no engine here.

pub mod proto;
