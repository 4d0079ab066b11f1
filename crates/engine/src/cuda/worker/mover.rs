//! Moves a worker to another share. Its graphs are first made executable there while batches run on
//! the present share; then the worker changes over between two batches. No batch waits. A share
//! that was prepared earlier need not be made ready again.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::captured_model::{ReadyGraph, make_ready};
use super::host::HostedModel;
use super::responder::Responder;
use super::share::{CurrentShare, Share};
use crate::EngineError;
use crate::cuda::driver::{CudaError, Device, Green, Stream};
use crate::cuda::wire::{Reply, SharePlace};

/// An order to prepare a share, or to take it.
pub(super) struct Move {
    pub(super) id: u64,
    pub(super) place: SharePlace,
    /// Whether to take the share. If not, it is only prepared.
    pub(super) takes: bool,
    /// The models whose graphs must be executable there.
    pub(super) models: Vec<Arc<HostedModel>>,
}

/// How many sizes of each model are made executable before the worker changes over: those that run
/// most often. The others follow, or are made executable at their first run, which then takes a
/// millisecond longer.
const SIZES_FIRST: usize = 6;

/// Runs the thread.
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
                // A batch that began during the last change, or an earlier preparation for another
                // share, may have left graphs that are executable elsewhere.
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
        // A graph that cannot be made executable now is made so at its first run.
        let _ = models.iter().try_for_each(|hosted| make_sizes_ready(hosted, &share, usize::MAX));
        forget_other_shares(&models, &share, compute)?;
    }
    Ok(())
}

/// Forgets the executable graphs of all shares but one.
fn forget_other_shares(
    models: &[Arc<HostedModel>],
    share: &Share,
    compute: &Stream,
) -> Result<(), CudaError> {
    let mut old: Vec<Arc<ReadyGraph>> = Vec::new();
    for hosted in models {
        hosted.with_captured(|model| model.forget_other_shares(share, &mut old));
    }
    // The last batch on an earlier share may still run.
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

/// Makes up to `most` sizes of a model executable on a share, those that run most often. The model
/// itself is locked for moments only.
fn make_sizes_ready(
    hosted: &HostedModel,
    share: &Arc<Share>,
    most: usize,
) -> Result<(), CudaError> {
    let _held = hosted.hold();
    let missing = hosted.with_captured(|model| model.missing(share, most)).unwrap_or_default();
    missing.into_iter().try_for_each(|twin| make_ready(&twin, share).map(drop))
}
