//! The best plan with shares that is found: a quick try, the program over subsets, then gpulet's exhaustive search; for
//! many demands, elastic partitioning in several orders.

use super::Found;
use super::board::Board;
use super::elastic::{elastic, elastic_in_order, ideal};
use super::scene::Scene;
use super::subsets::{ITEMS_MAX, search};

/// Gpulet's search through all ways to split the GPUs is part of the portfolio up to so many GPUs: 84 ways.
const IDEAL_GPUS_MAX: usize = 6;

/// A board on which at most so many GPUs serve all demands, if one is found. It is found whenever one of the methods here
/// finds it, so never less often than by gpulet's.
pub fn schedule(scene: &Scene, gpus: usize) -> Option<Board> {
    if scene.lower_bound() > gpus {
        return None;
    }
    let whole = |board: &Board| board.serves_all(scene);
    Some(elastic(scene, gpus))
        .filter(whole)
        .or_else(|| search(scene, gpus))
        .or_else(|| {
            orders(scene).into_iter().map(|order| elastic_in_order(scene, order, gpus)).find(whole)
        })
        .or_else(|| (gpus <= IDEAL_GPUS_MAX).then(|| ideal(scene, gpus)).flatten())
}

/// The fewest GPUs with which all demands are served; what can be had, if the limit does not allow it.
pub(super) fn best(scene: &Scene, limit: usize) -> Found {
    let quick = fewest(scene, limit, |gpus| {
        let mut boards =
            orders(scene).into_iter().map(|order| elastic_in_order(scene, order, gpus));
        boards.find(|board| board.serves_all(scene)).unwrap_or_else(|| elastic(scene, gpus))
    });
    if scene.items.len() > ITEMS_MAX {
        return quick;
    }
    let most = match quick.board.serves_all(scene) {
        true => quick.board.used().saturating_sub(1),
        false => limit.min(ample(scene)),
    };
    let fewer = (scene.lower_bound()..=most).find_map(|gpus| schedule(scene, gpus));
    match fewer {
        Some(board) => Found { enough: board.used(), board },
        None => quick,
    }
}

/// The fewest GPUs with which a method serves everything: as many as it takes where there are enough, then fewer for as
/// long as that is enough too. Gpulet's algorithm 2 counts up; the number is the same wherever more GPUs never hurt.
pub(super) fn fewest(scene: &Scene, limit: usize, method: impl Fn(usize) -> Board) -> Found {
    let ample = ample(scene);
    let mut board = method(ample);
    let enough = loop {
        let used = board.used();
        if !board.serves_all(scene) {
            break 0;
        }
        if used == 0 {
            break used;
        }
        let fewer = method(used - 1);
        if !fewer.serves_all(scene) {
            break used;
        }
        board = fewer;
    };
    if enough > limit || enough == 0 {
        board = method(limit.min(ample));
    }
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
