//! Squishy bin packing (Nexus 6.1): which sessions share an executor, and in batches of which size.
//!
//! A pure function of rates, profiles and the number of executors. Nexus asks how few executors are
//! enough; here their number is given, so the rates are scaled by the largest factor that still
//! fits: spare executors, and missing ones, fall to all sessions in proportion. The packing is made
//! from nothing each time: Nexus' care to move few models between epochs is not here, since
//! executors hold every model.

use fermata_core::{Span, Table};

/// What one model asks of a class of executors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    /// Requests per nanosecond.
    pub(super) rate: f64,
    /// From arrival to the end of execution.
    pub(super) budget: Span,
    /// How long batches take.
    pub(super) reach: &'a Table,
}

/// What one executor runs, in turns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) members: Vec<Member>,
    /// How long one round takes at most, in nanoseconds.
    duty: f64,
}

/// One session's part of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Member {
    /// Its place in the list of sessions.
    pub(super) session: usize,
    /// Its share of the session's rate, as scaled: a weight for routing.
    pub(super) rate: f64,
    /// The batch that one round is expected to gather.
    pub(super) batch: usize,
}

/// Scaling stops at this precision: finer, and no session would get another executor.
const PRECISION: f64 = 1e-3;
/// Rates are scaled by at most two to this power, and at least its inverse.
const DOUBLINGS_MAX: u32 = 32;

/// Places every session on `executors` executors, all of which are used.
pub(super) fn pack(sessions: &[Session<'_>], executors: usize) -> Vec<Node> {
    if sessions.is_empty() || executors == 0 {
        return Vec::new();
    }
    let fits = |factor: f64| Some(squishy(sessions, factor)).filter(|n| n.len() <= executors);
    let (mut low, mut high, mut best) = (0.0, f64::INFINITY, None);
    let mut factor = 1.0;
    for _ in 0..DOUBLINGS_MAX {
        match fits(factor) {
            Some(nodes) => (low, best, factor) = (factor, Some(nodes), factor * 2.0),
            None => (high, factor) = (factor, factor / 2.0),
        }
        if low > 0.0 && high.is_finite() {
            break;
        }
    }
    while best.is_some() && high.is_finite() && high - low > PRECISION * high {
        factor = (low + high) / 2.0;
        match fits(factor) {
            Some(nodes) => (low, best) = (factor, Some(nodes)),
            None => high = factor,
        }
    }
    let mut nodes = best.unwrap_or_else(|| crowd(sessions, executors));
    while nodes.len() < executors {
        halve_the_busiest(sessions, &mut nodes);
    }
    nodes.iter_mut().for_each(|node| fill(sessions, node));
    nodes
}

/// Algorithm 1, the rates multiplied by a factor.
fn squishy(sessions: &[Session<'_>], factor: f64) -> Vec<Node> {
    let (mut nodes, mut residue) = (Vec::new(), Vec::new());
    for (at, session) in sessions.iter().enumerate() {
        let rate = session.rate * factor;
        let batch = session.saturated_batch();
        let duty = session.reach.latency(batch).0 as f64;
        let peak = batch as f64 / duty;
        let whole = (rate / peak).floor();
        let saturated = Node { members: vec![Member { session: at, rate: peak, batch }], duty };
        // More nodes than any pool has executors would only fill the memory.
        nodes.resize(nodes.len() + whole.min(65_536.0) as usize, saturated);
        let rest = rate - whole * peak;
        if rest > rate * 1e-9 {
            residue.push(session.alone(at, rest));
        }
    }
    residue.sort_by(|a, b| {
        b.occupancy(sessions).total_cmp(&a.occupancy(sessions)).then(a.first().cmp(&b.first()))
    });
    let saturated = nodes.len();
    for node in residue {
        // Best fit: the merged node that is the fullest.
        let merged = (saturated..nodes.len()).filter_map(|at| {
            let merged = merge(sessions, &nodes[at], &node)?;
            Some((merged.occupancy(sessions), at, merged))
        });
        let fullest = merged.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        match fullest {
            Some((_, at, merged)) => nodes[at] = merged,
            None => nodes.push(node),
        }
    }
    nodes
}

/// Both nodes on one executor, in the shorter of their rounds; `None` if that is too much (figure
/// 7).
fn merge(sessions: &[Session<'_>], a: &Node, b: &Node) -> Option<Node> {
    let duty = a.duty.min(b.duty);
    let squeezed = a.members.iter().chain(&b.members).map(|member| {
        // A little less, so that a rounding error does not count as one more request.
        let batch = (duty * member.rate - 1e-6).ceil().max(1.0) as usize;
        Member { batch: batch.min(member.batch), ..*member }
    });
    let node = Node { members: squeezed.collect(), duty };
    (node.occupancy(sessions) <= 1.0 + 1e-9).then_some(node)
}

/// Everything on too few executors: no promise can be kept, so only the work is spread evenly.
fn crowd(sessions: &[Session<'_>], executors: usize) -> Vec<Node> {
    let mut parts = squishy(sessions, 1.0);
    parts.sort_by(|a, b| b.work(sessions).total_cmp(&a.work(sessions)));
    let mut nodes: Vec<(f64, Node)> =
        vec![(0.0, Node { members: Vec::new(), duty: f64::INFINITY }); executors.min(parts.len())];
    for part in parts {
        let least = nodes.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
        let (load, node) = least.expect("there is at least one executor and one part");
        *load += part.work(sessions);
        node.duty = node.duty.min(part.duty);
        for member in part.members {
            match node.members.iter_mut().find(|other| other.session == member.session) {
                Some(other) => other.rate += member.rate,
                None => node.members.push(member),
            }
        }
    }
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// Gives the fullest node a second executor.
fn halve_the_busiest(sessions: &[Session<'_>], nodes: &mut Vec<Node>) {
    let busiest = nodes.iter_mut().max_by(|a, b| a.work(sessions).total_cmp(&b.work(sessions)));
    let node = busiest.expect("there is at least one session");
    for member in &mut node.members {
        member.rate /= 2.0;
    }
    let twin = node.clone();
    nodes.push(twin);
}

/// Raises the batches of a node in turns for as long as all deadlines hold. Executors do not wait
/// for the end of a duty cycle: a round is only as long as its executions, and what that leaves is
/// room for bursts.
fn fill(sessions: &[Session<'_>], node: &mut Node) {
    let latency = |m: &Member| sessions[m.session].reach.latency(m.batch);
    let holds = |members: &[Member]| {
        let round = members.iter().map(latency).fold(Span::ZERO, |sum, each| sum + each);
        members.iter().all(|m| round + latency(m) <= sessions[m.session].budget)
    };
    let mut growing = true;
    while growing {
        growing = false;
        for at in 0..node.members.len() {
            node.members[at].batch += 1;
            if holds(&node.members) {
                growing = true;
            } else {
                node.members[at].batch -= 1;
            }
        }
    }
}

impl Session<'_> {
    /// The batch of an executor that runs nothing else: the largest with `2 l(b) <= budget`, since
    /// who just misses a batch waits for all of it. One, if there is no such batch.
    pub(super) fn saturated_batch(&self) -> usize {
        self.reach.largest_within(Span(self.budget.0 / 2)).max(1)
    }

    /// A node of its own for a rate that does not fill it: the largest batch with `l(b) + b / rate
    /// <= budget` (equation 2). A single request need not be gathered: where not even it comes
    /// often enough, only the round must be short enough.
    fn alone(&self, at: usize, rate: f64) -> Node {
        let batch = self.reach.gathered_within(self.budget, rate);
        let shortest = self.reach.shortest();
        let duty = match batch {
            0 => (self.budget - shortest).max(shortest).0 as f64,
            _ => batch as f64 / rate,
        };
        Node { members: vec![Member { session: at, rate, batch: batch.max(1) }], duty }
    }
}

impl Node {
    /// The share of a round that is execution.
    fn occupancy(&self, sessions: &[Session<'_>]) -> f64 {
        let latency = |m: &Member| sessions[m.session].reach.latency(m.batch).0 as f64;
        self.members.iter().map(latency).sum::<f64>() / self.duty
    }

    /// How many executors its requests keep busy in batches as planned.
    fn work(&self, sessions: &[Session<'_>]) -> f64 {
        let each = |m: &Member| m.rate * sessions[m.session].reach.cost(m.batch);
        self.members.iter().map(each).sum()
    }

    fn first(&self) -> Option<usize> {
        self.members.first().map(|member| member.session)
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Profile;

    use super::*;

    fn profile(latencies: &[(usize, f64)]) -> Profile {
        let mut table = Vec::new();
        for &(size, ms) in latencies {
            table.resize(size, Span::from_ms(ms));
        }
        Profile::from_table(table).unwrap()
    }

    /// The models of table 2 in the Nexus text.
    fn table_2() -> [Profile; 3] {
        [
            profile(&[(4, 50.0), (8, 75.0), (16, 100.0)]),
            profile(&[(4, 50.0), (8, 90.0), (16, 125.0)]),
            profile(&[(4, 60.0), (8, 95.0), (16, 125.0)]),
        ]
    }

    fn sessions<'a>(profiles: &'a [Profile; 3], rates: [f64; 3]) -> Vec<Session<'a>> {
        let each = profiles.iter().zip(rates).zip([200.0, 250.0, 250.0]);
        each.map(|((reach, rate), slo)| Session {
            rate: rate / 1e9,
            budget: Span::from_ms(slo),
            reach,
        })
        .collect()
    }

    #[test]
    fn the_example_of_the_text_puts_a_and_b_together() {
        let profiles = table_2();
        let nodes = squishy(&sessions(&profiles, [64.0, 32.0, 32.0]), 1.0);
        let places: Vec<Vec<(usize, usize)>> = nodes
            .iter()
            .map(|node| node.members.iter().map(|m| (m.session, m.batch)).collect())
            .collect();
        assert_eq!(places, [vec![(0, 8), (1, 4)], vec![(2, 4)]]);
        assert!((nodes[0].duty - 125e6).abs() < 1.0);
    }

    #[test]
    fn high_rates_get_executors_of_their_own() {
        let profiles = table_2();
        let nodes = squishy(&sessions(&profiles, [320.0, 128.0, 128.0]), 1.0);
        let alone: Vec<usize> = nodes.iter().filter_map(Node::first).collect();
        assert_eq!(alone, [0, 0, 1, 2]);
        assert!(nodes.iter().all(|node| node.members[0].batch == 16));
    }

    #[test]
    fn a_session_alone_has_the_batch_of_a_full_executor() {
        let profiles = table_2();
        let nodes = pack(&sessions(&profiles, [64.0, 32.0, 32.0]), 3);
        assert!(nodes.iter().all(|node| node.members.len() == 1 && node.members[0].batch == 16));
    }

    #[test]
    fn every_executor_is_used_and_every_session_placed() {
        let profiles = table_2();
        for rates in [[64.0, 32.0, 32.0], [5000.0, 1.0, 1.0], [1e-6, 1e-6, 1e-6]] {
            let sessions = sessions(&profiles, rates);
            for executors in 1..=9 {
                let nodes = pack(&sessions, executors);
                assert_eq!(nodes.len(), executors);
                for session in 0..3 {
                    let here = |node: &&Node| node.members.iter().any(|m| m.session == session);
                    assert!(nodes.iter().any(|node| here(&node)), "{rates:?} on {executors}");
                }
            }
        }
    }
}
