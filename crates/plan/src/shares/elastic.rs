//! Elastic partitioning (gpulet, algorithm 1), and the search through all partitionings that its
//! authors call ideal.
//!
//! Demands are placed one after the other, those with the smallest rate times objective first. Each
//! looks for a share of the size that is enough for it, or where more would hardly help; it takes
//! the smallest free share of at least that size, splitting a whole GPU if it comes to that, unless
//! it can take turns with those on a share in use.
//!
//! How the text was read. A share is tested by the rounds of `round.rs`, which allow whatever any
//! duty cycle does. Nobody may be placed who makes a neighbour late, so the share that is enough is
//! asked for beside the loudest neighbour: reckoned alone, it would bear none, and the rest of its
//! GPU would stay empty. Taking turns is tried also where no free share is left, and a rest for
//! which no share is large enough goes in parts to where most of it fits: the printed loop would
//! have no end there.

use super::board::{Board, Gpu, Place};
use super::scene::Scene;

/// Rates below this part of a demand are rounding errors.
const NOTHING: f64 = 1e-9;

/// Elastic partitioning of so many GPUs. What does not fit is not on the board.
pub fn elastic(scene: &Scene, gpus: usize) -> Board {
    elastic_in_order(scene, by_rate_and_slo(scene), gpus)
}

/// Elastic partitioning with the demands in another order.
pub(super) fn elastic_in_order(scene: &Scene, order: Vec<usize>, gpus: usize) -> Board {
    let loudest = scene.items.len();
    Placing::new(scene, order, loudest, true).place_all(Board::whole(scene, gpus))
}

/// Tries every way to split the GPUs until all demands fit; `None` if they never do. GPUs are
/// alike, so that of the `4^n` ways only those that differ by more than their order are tried.
/// Nothing must be kept for later neighbours where sizes are given, so a share is asked for both as
/// if it had none, and as if it had the loudest.
pub fn ideal(scene: &Scene, gpus: usize) -> Option<Board> {
    let placings = [0, scene.items.len()]
        .map(|level| Placing::new(scene, by_rate_and_slo(scene), level, false));
    let whole = vec![scene.whole()];
    let ways: Vec<Vec<usize>> =
        scene.splits.iter().map(|&(p, q)| vec![p, q]).chain([whole]).collect();
    // How each GPU is split, never rising: one of all orders of the same.
    let mut chosen = vec![ways.len() - 1; gpus];
    loop {
        let split = Board { gpus: chosen.iter().map(|&way| Gpu::of(&ways[way])).collect() };
        let mut boards = placings.iter().map(|placing| placing.place_all(split.clone()));
        if let Some(board) = boards.find(|board| board.serves_all(scene)) {
            return Some(board);
        }
        let last = chosen.iter().rposition(|&way| way > 0)?;
        let next = chosen[last] - 1;
        chosen[last..].fill(next);
    }
}

fn by_rate_and_slo(scene: &Scene) -> Vec<usize> {
    let key = |item: &usize| scene.items[*item].rate * scene.items[*item].slo.as_secs();
    let mut order: Vec<usize> = (0..scene.items.len()).collect();
    order.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.cmp(b)));
    order
}

/// How demands are placed.
struct Placing<'a> {
    scene: &'a Scene,
    order: Vec<usize>,
    /// By item and size: the most that a share serves beside the noise that is reckoned with.
    capacity: Vec<Vec<f64>>,
    /// Whether whole GPUs may be split.
    splits: bool,
}

impl<'a> Placing<'a> {
    fn new(scene: &'a Scene, order: Vec<usize>, level: usize, splits: bool) -> Self {
        let noise = |size: usize| if size == scene.whole() { 0 } else { level };
        let sizes = |item| {
            (0..scene.sizes.len()).map(|size| scene.room(size, noise(size), &[], item)).collect()
        };
        let capacity = (0..scene.items.len()).map(sizes).collect();
        Self { scene, order, capacity, splits }
    }

    fn place_all(&self, mut board: Board) -> Board {
        let scene = self.scene;
        for &item in &self.order {
            let asked = scene.items[item].rate;
            let capacity = &self.capacity[item];
            let efficient = knee(capacity, scene.knee);
            let mut rest = asked;
            while rest > asked * NOTHING {
                let required = capacity.iter().position(|&most| most >= rest);
                let size = required.unwrap_or(scene.whole()).min(efficient);
                let placed = self.place_part(&mut board, (item, rest), size);
                if placed <= asked * NOTHING {
                    break;
                }
                rest -= placed;
            }
        }
        board
    }

    /// Places an item, or a part of it, and tells how much.
    fn place_part(&self, board: &mut Board, (item, rest): (usize, f64), size: usize) -> f64 {
        let scene = self.scene;
        let free = self.find_free(board, item, size);
        let part = free.map_or(rest, |free| free.room.min(rest));
        let places = board.by_size();
        let shared = places.iter().copied().find(|&place| {
            !board.slot(place).members.is_empty()
                && board.fits(scene, place, (item, part), scene.models)
        });
        if let Some(place) = shared {
            board.place(place, item, part);
            return part;
        }
        if let Some(free) = free {
            if free.splits {
                board.split(scene, free.place.0, size);
            }
            board.place(free.place, item, part);
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

    /// The smallest free share of at least this size that can serve any of the item.
    fn find_free(&self, board: &Board, item: usize, size: usize) -> Option<Free> {
        let scene = self.scene;
        let free = |place: &Place| {
            let slot = board.slot(*place);
            slot.members.is_empty() && slot.size >= size
        };
        let tried = board.by_size().into_iter().filter(free).map(|place| {
            let whole = board.slot(place).size == scene.whole();
            let splits = self.splits && whole && scene.beside(size).is_some();
            // A share of a GPU that is split for it has no neighbour.
            let room = match splits {
                true => scene.room(size, 0, &[], item),
                false => board.room(scene, place, item, scene.models),
            };
            Free { place, splits, room }
        });
        tried.into_iter().find(|free| free.room > 0.0)
    }
}

/// A free share.
#[derive(Clone, Copy)]
struct Free {
    place: Place,
    /// Whether it comes of a whole GPU that is split for it.
    splits: bool,
    /// How much of the item it serves.
    room: f64,
}

/// The largest share that still pays: the next larger one serves less than `knee` times as much.
fn knee(capacity: &[f64], knee: f64) -> usize {
    let pays = |pair: &[f64]| pair[1] >= knee * pair[0];
    capacity.windows(2).position(|pair| !pays(pair)).unwrap_or(capacity.len() - 1)
}
