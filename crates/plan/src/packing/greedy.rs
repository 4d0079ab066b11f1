//! The greedy rules that others use: squishy bin packing as Nexus prints it (algorithm 1), and
//! packing that knows nothing of batches.

use fermata_core::Span;

use super::{Packer, Session, Set};

/// A GPU with its round, as algorithm 1 keeps it: the round of whoever had the shortest, and not
/// the shortest possible.
struct Node {
    members: Set,
    duty: f64,
}

/// Algorithm 1 for sessions that do not fill a GPU: each begins on a GPU of its own with the
/// largest batch that it can gather in time; in the order of their occupancy they are merged into
/// the node that becomes the fullest.
pub fn squishy(packer: &Packer<'_>) -> Vec<Set> {
    let alone: Vec<Node> = (0..packer.sessions.len()).map(|at| alone(packer, at)).collect();
    let mut order: Vec<(f64, usize)> =
        alone.iter().enumerate().map(|(at, node)| (occupancy(packer, node), at)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));

    let mut nodes: Vec<Node> = Vec::new();
    for (_, at) in order {
        let mut fullest: Option<(f64, usize, Node)> = None;
        for (place, node) in nodes.iter().enumerate() {
            let Some(merged) = merge(packer, node, &alone[at]) else { continue };
            let occupied = occupancy(packer, &merged);
            if fullest.as_ref().is_none_or(|(most, ..)| occupied > *most) {
                fullest = Some((occupied, place, merged));
            }
        }
        match fullest {
            Some((_, place, merged)) => nodes[place] = merged,
            None => nodes.push(Node { members: vec![at], duty: alone[at].duty }),
        }
    }
    sorted(nodes.into_iter().map(|node| node.members).collect())
}

/// Lines 12 to 15: the largest batch with `l(b) + b / rate <= slo` (equation 2), and the time in
/// which it gathers. A single request need not be gathered: where not even it comes often enough,
/// only the round must be short enough.
fn alone(packer: &Packer<'_>, at: usize) -> Node {
    let Session { turn, .. } = &packer.sessions[at];
    let duty = match turn.profile.gathered_within(turn.slo, turn.rate * 1e-9) {
        0 => (turn.slo - turn.profile.shortest()).0 as f64,
        batch => batch as f64 / turn.rate * 1e9,
    };
    Node { members: vec![at], duty }
}

/// Both on one GPU in the shorter of their rounds; `None` if that is too much (figure 7).
fn merge(packer: &Packer<'_>, a: &Node, b: &Node) -> Option<Node> {
    let members: Set = a.members.iter().chain(&b.members).copied().collect();
    let node = Node { members, duty: a.duty.min(b.duty) };
    (packer.remembers(&node.members) && occupancy(packer, &node) <= 1.0).then_some(node)
}

/// The share of the round that is execution.
fn occupancy(packer: &Packer<'_>, node: &Node) -> f64 {
    let round = Span(node.duty as u64);
    let latency = |&at: &usize| packer.sessions[at].turn.latency(round).0 as f64;
    node.members.iter().map(latency).sum::<f64>() / node.duty
}

/// What a scheduler does that knows how many requests a second a GPU serves, and nothing of rounds
/// (the baseline of Nexus 7.2): first fit by the share of a GPU at the largest batch. Its sets need
/// not fit.
pub fn oblivious(packer: &Packer<'_>) -> Vec<Set> {
    let mut order: Vec<(f64, usize)> = (0..packer.sessions.len())
        .map(|at| (packer.sessions[at].turn.rate / packer.sessions[at].peak(), at))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut bins: Vec<(f64, Set)> = Vec::new();
    for (share, at) in order {
        match bins.iter_mut().find(|(taken, _)| taken + share <= 1.0) {
            Some((taken, members)) => {
                *taken += share;
                members.push(at);
            }
            None => bins.push((share, vec![at])),
        }
    }
    sorted(bins.into_iter().map(|(_, members)| members).collect())
}

/// Members in ascending order.
pub(super) fn sorted(mut sets: Vec<Set>) -> Vec<Set> {
    sets.iter_mut().for_each(|set| set.sort_unstable());
    sets
}
