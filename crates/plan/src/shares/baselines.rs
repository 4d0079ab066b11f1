//! What gpulet is compared with: squishy packing on whole GPUs, and best fit of shares without
//! taking turns.

use super::board::{Board, Place};
use super::scene::Scene;

/// Rates below this part of a demand are rounding errors.
const NOTHING: f64 = 1e-9;

/// Squishy packing (Nexus, algorithm 1) on so many whole GPUs: full ones first, then what is left
/// of each demand, the largest first, to the fullest GPU on which it can take its turn. A GPU holds
/// as many models as its memory does. What does not fit is not on the board.
pub fn squishy(scene: &Scene, gpus: usize) -> Board {
    let mut board = Board::whole(scene, gpus);
    let (mut next, mut rests) = (0, Vec::new());
    for (item, asked) in scene.items.iter().enumerate() {
        let full = scene.room(scene.whole(), 0, &[], item);
        let mut rest = asked.rate;
        while full > 0.0 && rest >= full && next < gpus {
            board.place((next, 0), item, full);
            (rest, next) = (rest - full, next + 1);
        }
        if rest > asked.rate * NOTHING {
            rests.push((item, rest));
        }
    }
    let load = |&(item, rate): &(usize, f64)| rate * scene.items[item].cost;
    rests.sort_by(|a, b| load(b).total_cmp(&load(a)).then(a.0.cmp(&b.0)));
    let full = next;
    for rest in rests {
        let fits = |gpu: &usize| board.fits(scene, (*gpu, 0), rest, usize::MAX);
        let loaded = |gpu: usize| board.slot((gpu, 0)).members.iter().map(load).sum::<f64>();
        let best = (full..next).filter(fits);
        let best = best.max_by(|&a, &b| loaded(a).total_cmp(&loaded(b)).then(b.cmp(&a)));
        let gpu = best.or_else(|| (next < gpus && fits(&next)).then_some(next));
        if let Some(gpu) = gpu {
            board.place((gpu, 0), rest.0, rest.1);
            next = next.max(gpu + 1);
        }
    }
    board
}

/// Every demand gets a share of its own, the smallest that is enough, on the fullest GPU that has
/// so much left; the demands that ask for most come first. Nobody takes turns.
pub fn best_fit(scene: &Scene, gpus: usize) -> Board {
    let mut board = Board::whole(scene, gpus);
    let mut order: Vec<usize> = (0..scene.items.len()).collect();
    let load = |item: &usize| scene.items[*item].load();
    order.sort_by(|a, b| load(b).total_cmp(&load(a)).then(a.cmp(b)));
    for item in order {
        let asked = scene.items[item].rate;
        let mut rest = asked;
        while rest > asked * NOTHING {
            let Some((changed, place, room)) = smallest_share(scene, &board, item, rest) else {
                break;
            };
            board = changed;
            board.place(place, item, room.min(rest));
            rest -= room.min(rest);
        }
    }
    board
}

/// The smallest free share that serves all of `rest`; if none does, a whole GPU.
fn smallest_share(
    scene: &Scene,
    board: &Board,
    item: usize,
    rest: f64,
) -> Option<(Board, Place, f64)> {
    let whole = scene.room(scene.whole(), 0, &[], item);
    let wanted = rest.min(whole);
    let free: Vec<Place> =
        board.by_size().into_iter().filter(|&place| board.slot(place).members.is_empty()).collect();
    for place in free {
        let size = board.slot(place).size;
        if size != scene.whole() {
            let room = board.room(scene, place, item, 1);
            if room >= wanted {
                return Some((board.clone(), place, room));
            }
            continue;
        }
        // The first free whole GPU stands for all: the smallest share of it that is enough.
        for size in 0..=scene.whole() {
            let mut changed = board.clone();
            if size != scene.whole() {
                changed.split(scene, place.0, size);
            }
            let room = changed.room(scene, place, item, 1);
            if room >= wanted && room > 0.0 {
                return Some((changed, place, room));
            }
        }
        return None;
    }
    None
}
