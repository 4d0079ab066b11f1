//! `fermata bench gpu`: what a GPU does: models over batches and shares, neighbours, and the server under load.

mod choice;
#[cfg(test)]
mod fake;
mod fit;
mod looping;
mod neighbours;
mod subject;
