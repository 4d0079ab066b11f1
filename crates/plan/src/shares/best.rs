//! The best plan with shares that is found: a quick try, the program over subsets, then gpulet's
//! exhaustive search. For more demands than the program can take, GPU by GPU, elastic partitioning
//! in several orders, and whole GPUs: good plans, not the best.

use super::Found;
use super::baselines::squishy;
use super::board::Board;
use super::elastic::{elastic, elastic_in_order, ideal};
use super::scene::Scene;
use super::subsets::{ITEMS_MAX, full_ones, gpu_by_gpu, renamed, search};

/// Gpulet's search through all ways to split the GPUs is part of the portfolio up to so many GPUs:
/// 84 ways.
const IDEAL_GPUS_MAX: usize = 6;

/// A board on which at most so many GPUs serve all demands, if one is found. It is found whenever
/// one of the methods here finds it, so never less often than by gpulet's.
pub fn schedule(scene: &Scene, gpus: usize) -> Option<Board> {
    if scene.lower_bound() > gpus {
        return None;
    }
    let whole = |board: &Board| board.serves_all(scene);
    Some(elastic(scene, gpus))
        .filter(whole)
        .or_else(|| search(scene, gpus))
        .or_else(|| Some(squishy(scene, gpus)).filter(whole))
        .or_else(|| {
            orders(scene).into_iter().map(|order| elastic_in_order(scene, order, gpus)).find(whole)
        })
        .or_else(|| (gpus <= IDEAL_GPUS_MAX).then(|| ideal(scene, gpus)).flatten())
}

/// The fewest GPUs with which all demands are served; what can be had, if the limit does not allow
/// it.
pub(super) fn best(scene: &Scene, limit: usize) -> Found {
    let mut found = elastic_fewest(scene, limit);
    found.keep(scene, limit, gpu_by_gpu(scene));
    let ample = ample(scene);
    found.keep(scene, limit, squishy(scene, ample));
    for order in orders(scene) {
        found.keep(scene, limit, elastic_in_order(scene, order, ample));
    }
    if scene.items.len() <= ITEMS_MAX {
        let most = if found.enough == 0 { ample } else { found.enough - 1 };
        let fewer = (scene.lower_bound()..=most).find_map(|gpus| schedule(scene, gpus));
        if let Some(board) = fewer {
            found.keep(scene, limit, board);
        }
    }
    found
}

impl Found {
    /// Takes another board, if it serves everything with fewer GPUs.
    fn keep(&mut self, scene: &Scene, limit: usize, board: Board) {
        let used = board.used();
        if board.serves_all(scene) && (self.enough == 0 || used < self.enough) {
            self.enough = used;
            if used <= limit {
                self.board = board;
            }
        }
    }
}

/// The fewest GPUs with which elastic partitioning serves everything: as many as it takes where
/// there are enough, then fewer for as long as that is enough too. Gpulet's algorithm 2 counts up;
/// the number is the same wherever more GPUs never hurt.
pub(super) fn elastic_fewest(scene: &Scene, limit: usize) -> Found {
    let ample = ample(scene);
    let mut board = elastic(scene, ample);
    let enough = loop {
        let used = board.used();
        if !board.serves_all(scene) {
            break 0;
        }
        if used == 0 {
            break used;
        }
        let fewer = elastic(scene, used - 1);
        if !fewer.serves_all(scene) {
            break used;
        }
        board = fewer;
    };
    if enough > limit || enough == 0 {
        board = elastic(scene, limit.min(ample));
    }
    Found { board, enough }
}

/// Loads of more GPUs than this get those first that one demand fills: there are too many to look
/// at one by one.
const LOAD_MAX: f64 = 200.0;

/// A method, for any load.
pub(super) fn beside_full_ones(
    scene: &Scene,
    limit: usize,
    method: impl Fn(&Scene, usize) -> Found,
) -> Found {
    if scene.load() <= LOAD_MAX {
        return method(scene, limit);
    }
    let (mut board, rests) = full_ones(scene);
    let full = board.gpus.len();
    board.gpus.truncate(limit);
    let found = method(&scene.part(&rests), limit - board.gpus.len());
    board.gpus.extend(found.board.gpus.into_iter().map(|gpu| renamed(gpu, &rests)));
    let enough = if found.enough == 0 && !rests.is_empty() { 0 } else { full + found.enough };
    Found { board, enough }
}

/// So many GPUs that every demand may have its own.
fn ample(scene: &Scene) -> usize {
    let alone = |item: usize| {
        let most = scene.room(scene.whole(), 0, &[], item);
        (scene.items[item].rate / most).ceil() as usize
    };
    (0..scene.items.len()).map(alone).fold(0, usize::saturating_add)
}

/// Orders in which demands are worth placing: by load, by objective, by rate, from either end.
fn orders(scene: &Scene) -> Vec<Vec<usize>> {
    let keys: [fn(&Scene, usize) -> f64; 3] = [
        |scene, item| scene.items[item].load(),
        |scene, item| scene.items[item].slo.as_secs(),
        |scene, item| scene.items[item].rate * scene.items[item].slo.as_secs(),
    ];
    let mut orders = Vec::new();
    for key in keys {
        let mut order: Vec<usize> = (0..scene.items.len()).collect();
        order.sort_by(|&a, &b| key(scene, a).total_cmp(&key(scene, b)).then(a.cmp(&b)));
        orders.push(order.iter().rev().copied().collect());
        orders.push(order);
    }
    orders
}
