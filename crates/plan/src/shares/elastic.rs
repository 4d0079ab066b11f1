//! Elastic partitioning (gpulet, algorithm 1), and the search through all partitionings that its authors call ideal.
//!
//! Demands are placed one after the other, those with the smallest rate times objective first. Each looks for a share of
//! the size that is enough for it, or where more would hardly help; it takes the smallest free share of at least that
//! size, splitting a whole GPU if it comes to that, unless it can take turns with those on a share in use.
//!
//! How the text was read. A share is tested by the rounds of `round.rs`, which allow whatever any duty cycle does. Nobody
//! may be placed who makes a neighbour late. Taking turns is tried also where no free share is left, and a rest for which
//! no share is large enough goes in parts to where most of it fits: the printed loop would have no end there. So the
//! methods here schedule more than the printed ones, never less.

use super::board::{Board, Gpu, Place};
use super::scene::Scene;

/// Rates below this part of a demand are rounding errors.
const NOTHING: f64 = 1e-9;

/// Elastic partitioning of so many GPUs. What does not fit is not on the board.
pub fn elastic(scene: &Scene, gpus: usize) -> Board {
    place_all(scene, &by_rate_and_slo(scene), Board::whole(scene, gpus), true)
}

/// Tries every way to split the GPUs until all demands fit; `None` if they never do. GPUs are alike, so that of the
/// `4^n` ways only those that differ by more than their order are tried.
pub fn ideal(scene: &Scene, gpus: usize) -> Option<Board> {
    let order = by_rate_and_slo(scene);
    let whole = vec![scene.whole()];
    let ways: Vec<Vec<usize>> =
        scene.splits.iter().map(|&(p, q)| vec![p, q]).chain([whole]).collect();
    // How each GPU is split, never rising: the last of equal multisets.
    let mut chosen = vec![ways.len() - 1; gpus];
    loop {
        let split = chosen.iter().map(|&way| Gpu::of(&ways[way])).collect();
        let board = place_all(scene, &order, Board { gpus: split }, false);
        if board.serves_all(scene) {
            return Some(board);
        }
        let last = chosen.iter().rposition(|&way| way > 0)?;
        let next = chosen[last] - 1;
        chosen[last..].fill(next);
    }
}

/// Elastic partitioning with the demands in another order.
pub(super) fn elastic_in_order(scene: &Scene, order: &[usize], gpus: usize) -> Board {
    place_all(scene, order, Board::whole(scene, gpus), true)
}

fn by_rate_and_slo(scene: &Scene) -> Vec<usize> {
    let key = |item: &usize| scene.items[*item].rate * scene.items[*item].slo.as_secs();
    let mut order: Vec<usize> = (0..scene.items.len()).collect();
    order.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.cmp(b)));
    order
}

fn place_all(scene: &Scene, order: &[usize], mut board: Board, may_split: bool) -> Board {
    for &item in order {
        let asked = scene.items[item].rate;
        let capacity: Vec<f64> =
            (0..scene.sizes.len()).map(|size| scene.room(size, 0, &[], item)).collect();
        let efficient = knee(&capacity, scene.knee);
        let mut rest = asked;
        while rest > asked * NOTHING {
            let required = capacity.iter().position(|&most| most >= rest);
            let size = required.unwrap_or(scene.whole()).min(efficient);
            let placed = place_part(scene, &mut board, (item, rest), size, may_split);
            if placed <= asked * NOTHING {
                break;
            }
            rest -= placed;
        }
    }
    board
}

/// The largest share that still pays: the next larger one serves less than `knee` times as much.
fn knee(capacity: &[f64], knee: f64) -> usize {
    let pays = |pair: &[f64]| pair[1] >= knee * pair[0];
    capacity.windows(2).position(|pair| !pays(pair)).unwrap_or(capacity.len() - 1)
}

/// Places an item, or a part of it, and tells how much.
fn place_part(
    scene: &Scene,
    board: &mut Board,
    (item, rest): (usize, f64),
    size: usize,
    may_split: bool,
) -> f64 {
    let free = find_free(scene, board, item, size, may_split);
    let part = free.as_ref().map_or(rest, |(_, _, room)| room.min(rest));
    let places = board.by_size();
    let shared = places.iter().copied().find(|&place| {
        !board.slot(place).members.is_empty()
            && board.fits(scene, place, (item, part), scene.models)
    });
    if let Some(place) = shared {
        board.place(place, item, part);
        return part;
    }
    if let Some((changed, place, _)) = free {
        *board = changed;
        board.place(place, item, part);
        return part;
    }
    let room = |place: &Place| board.room(scene, *place, item, scene.models);
    let most = places.iter().map(|place| (room(place), *place));
    let most = most.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    match most {
        Some((room, place)) if room > 0.0 => {
            let part = room.min(rest);
            board.place(place, item, part);
            part
        }
        _ => 0.0,
    }
}

/// The smallest free share of at least this size that can serve any of the item, and how much; with the board as it is
/// once a GPU was split for it.
fn find_free(
    scene: &Scene,
    board: &Board,
    item: usize,
    size: usize,
    may_split: bool,
) -> Option<(Board, Place, f64)> {
    let free = |place: &Place| {
        let slot = board.slot(*place);
        slot.members.is_empty() && slot.size >= size
    };
    let mut tried_whole = false;
    for place in board.by_size().into_iter().filter(free) {
        let splits =
            may_split && board.slot(place).size == scene.whole() && scene.beside(size).is_some();
        // All whole GPUs that are free are alike.
        if splits && std::mem::replace(&mut tried_whole, true) {
            continue;
        }
        let mut changed = board.clone();
        if splits {
            changed.split(scene, place.0, size);
        }
        let room = changed.room(scene, place, item, scene.models);
        if room > 0.0 {
            return Some((changed, place, room));
        }
    }
    None
}
