//! Moves a worker to another share: what it runs is made ready there beside what it runs on now, and then it changes over between two
//! batches. No batch waits for it. What is made ready before it is to change over need not be then.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::captured_model::{ReadyGraph, make_ready};
use super::host::HostedModel;
use super::responder::Responder;
use super::share::{CurrentShare, Share};
use crate::EngineError;
use crate::cuda::driver::{CudaError, Device, Green, Stream};
use crate::cuda::wire::{Reply, SharePlace};

/// Make ready for another share, or take it.
pub(super) struct Move {
    pub(super) id: u64,
    pub(super) place: SharePlace,
    /// It is made ready only, if not.
    pub(super) takes: bool,
    /// What must be ready there.
    pub(super) models: Vec<Arc<HostedModel>>,
}

/// The sizes of each model that are made ready before it changes over: those that are used most. The others make_sizes_ready, or are made ready when
/// they are run, which then takes a millisecond more.
const SIZES_FIRST: usize = 6;

/// The thread that moves.
pub(super) fn run_mover(
    device: &Device,
    orders: &Receiver<Move>,
    current: &CurrentShare,
    compute: &Stream,
    responder: &Responder,
) -> Result<(), CudaError> {
    device.set_current()?;
    let (all, _) = device.multiprocessors()?;
    let mut number = current.get().number;
    let mut prepared: Option<(SharePlace, Arc<Share>)> = None;
    for Move { id, place, takes, models } in orders {
        let kept = prepared.take().filter(|(ready, _)| *ready == place);
        let share = match kept {
            Some((_, share)) => Ok(share),
            None => {
                // A batch that was begun while it last changed over may have made something ready on the share before, and so did who prepared for another.
                forget_other_shares(&models, &current.get(), compute)?;
                number += 1;
                make(device, number, &place, all).map(Arc::new)
            }
        };
        let ready = share.and_then(|share| {
            models.iter().try_for_each(|hosted| make_sizes_ready(hosted, &share, SIZES_FIRST))?;
            Ok(share)
        });
        let share = match ready {
            Ok(share) => share,
            Err(error) => {
                responder.answer(id, Err(error));
                continue;
            }
        };
        if !takes {
            prepared = Some((place, share));
            responder.answer(id, Ok(Reply::Done));
            continue;
        }
        current.set(share.clone());
        responder.answer(id, Ok(Reply::Done));
        // What is not ready yet is made so when it is run, if it cannot be now.
        let _ = models.iter().try_for_each(|hosted| make_sizes_ready(hosted, &share, usize::MAX));
        forget_other_shares(&models, &share, compute)?;
    }
    Ok(())
}

/// Forgets all shares but one.
fn forget_other_shares(
    models: &[Arc<HostedModel>],
    share: &Share,
    compute: &Stream,
) -> Result<(), CudaError> {
    let mut old: Vec<Arc<ReadyGraph>> = Vec::new();
    for hosted in models {
        hosted.with_captured(|model| model.forget_other_shares(share, &mut old));
    }
    // The last batch on a share that was may still run.
    if old.is_empty() { Ok(()) } else { compute.wait() }
}

fn make(device: &Device, number: u64, place: &SharePlace, all: u32) -> Result<Share, EngineError> {
    let part = place.part;
    let (green, multiprocessors) = match &place.counts {
        None => (None, all),
        Some(counts) => {
            let count = counts.get(part).copied();
            let count =
                count.ok_or_else(|| EngineError::Run(format!("there is no share {part}")))?;
            (Some(Green::new(device, counts, part)?), count)
        }
    };
    Ok(Share { number, device: *device, green, multiprocessors })
}

/// Makes a model ready on a share: so many sizes, those that are used most. It is held for moments only.
fn make_sizes_ready(
    hosted: &HostedModel,
    share: &Arc<Share>,
    most: usize,
) -> Result<(), CudaError> {
    let _held = hosted.hold();
    let missing = hosted.with_captured(|model| model.missing(share, most)).unwrap_or_default();
    missing.into_iter().try_for_each(|twin| make_ready(&twin, share).map(drop))
}
