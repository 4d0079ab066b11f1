//! GPUs while they are filled: whole or in two shares, what each holds, and what still fits.

use super::scene::Scene;
use crate::plan::{Member, Pool};

/// A share, or a whole GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slot {
    /// Its place in the scene's list of sizes.
    pub(super) size: usize,
    /// Items with the rate that is served here.
    pub(super) members: Vec<(usize, f64)>,
}

/// One slot of the whole, or two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gpu {
    pub(super) slots: Vec<Slot>,
}

/// GPUs, and who is on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    pub(super) gpus: Vec<Gpu>,
}

/// A slot's place.
pub(super) type Place = (usize, usize);

impl Board {
    /// So many GPUs, whole and empty.
    pub(super) fn whole(scene: &Scene, gpus: usize) -> Self {
        Self { gpus: vec![Gpu::of(&[scene.whole()]); gpus] }
    }

    /// Every slot, the smallest first, then by GPU.
    pub(super) fn by_size(&self) -> Vec<Place> {
        let slots = |gpu: usize| (0..self.gpus[gpu].slots.len()).map(move |slot| (gpu, slot));
        let mut places: Vec<Place> = (0..self.gpus.len()).flat_map(slots).collect();
        places.sort_by_key(|&place| (self.slot(place).size, place));
        places
    }

    pub(super) fn slot(&self, (gpu, slot): Place) -> &Slot {
        &self.gpus[gpu].slots[slot]
    }

    /// The members of the other slot on the same GPU.
    fn neighbour(&self, (gpu, slot): Place) -> Option<&Slot> {
        self.gpus[gpu].slots.get(1 - slot)
    }

    /// The highest rate of an item that a slot of its GPU can serve: nobody there becomes late, and
    /// there is memory. `models` is how many a slot may hold.
    pub(super) fn room(&self, scene: &Scene, place: Place, item: usize, models: usize) -> f64 {
        let slot = self.slot(place);
        let already = slot.members.iter().find(|(member, _)| *member == item);
        if already.is_none() && slot.members.len() >= models || !self.bears(scene, place, item) {
            return 0.0;
        }
        let level = self.neighbour(place).map_or(0, |other| scene.level(&other.members));
        match already {
            None => scene.room(slot.size, level, &slot.members, item),
            Some(&(_, served)) => {
                let others: Vec<(usize, f64)> =
                    slot.members.iter().copied().filter(|(member, _)| *member != item).collect();
                (scene.room(slot.size, level, &others, item) - served).max(0.0)
            }
        }
    }

    /// Whether the item can be served at this rate there.
    pub(super) fn fits(
        &self,
        scene: &Scene,
        place: Place,
        (item, rate): (usize, f64),
        models: usize,
    ) -> bool {
        let slot = self.slot(place);
        if slot.members.len() >= models
            || slot.members.iter().any(|(member, _)| *member == item)
            || !self.bears(scene, place, item)
        {
            return false;
        }
        let level = self.neighbour(place).map_or(0, |other| scene.level(&other.members));
        let mut members = slot.members.clone();
        members.push((item, rate));
        scene.round(slot.size, level, &members).is_some()
    }

    /// Whether the neighbour bears the noise of one more item, and the GPU its weights.
    fn bears(&self, scene: &Scene, place: Place, item: usize) -> bool {
        let bytes = |slot: &Slot| scene.bytes(slot.members.iter().map(|&(member, _)| member));
        let slot = self.slot(place);
        let present = slot.members.iter().any(|(member, _)| *member == item);
        let own = slot.members.iter().map(|&(member, _)| member).chain((!present).then_some(item));
        let own = scene.bytes(own);
        let Some(other) = self.neighbour(place) else { return scene.holds(own, 0) };
        let level = scene.level(&slot.members).max(item + 1);
        scene.holds(own, bytes(other))
            && (other.members.is_empty()
                || scene.round(other.size, level, &other.members).is_some())
    }

    /// Puts an item on a slot, or raises its rate there.
    pub(super) fn place(&mut self, (gpu, slot): Place, item: usize, rate: f64) {
        let members = &mut self.gpus[gpu].slots[slot].members;
        match members.iter_mut().find(|(member, _)| *member == item) {
            Some((_, served)) => *served += rate,
            None => members.push((item, rate)),
        }
    }

    /// An empty whole GPU becomes two slots; the first has the size that is given.
    pub(super) fn split(&mut self, scene: &Scene, gpu: usize, size: usize) {
        let rest = scene.beside(size).expect("only sizes with a complement are split off");
        self.gpus[gpu] = Gpu::of(&[size, rest]);
    }

    /// The rate at which each item is served.
    pub(super) fn served(&self, scene: &Scene) -> Vec<f64> {
        let mut served = vec![0.0; scene.items.len()];
        let members = self.gpus.iter().flat_map(|gpu| &gpu.slots).flat_map(|slot| &slot.members);
        members.for_each(|&(item, rate)| served[item] += rate);
        served
    }

    /// Whether every item is served at its rate.
    pub(super) fn serves_all(&self, scene: &Scene) -> bool {
        let enough = |(served, wanted): (f64, f64)| served >= wanted * (1.0 - 1e-9);
        self.served(scene).into_iter().zip(scene.items.iter().map(|item| item.rate)).all(enough)
    }

    /// How many GPUs are in use.
    pub(super) fn used(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_used()).count()
    }

    /// As pools of a plan, a slot each, on GPUs numbered from `first`.
    pub(super) fn pools(&self, scene: &Scene, kind: usize, first: usize) -> Vec<Pool> {
        let used = self.gpus.iter().filter(|gpu| gpu.is_used());
        let numbered = used.zip(first..);
        numbered.flat_map(|(gpu, number)| gpu.pools(scene, kind, number)).collect()
    }
}

impl Gpu {
    /// Empty slots of these sizes.
    pub(super) fn of(sizes: &[usize]) -> Self {
        let slot = |&size: &usize| Slot { size, members: Vec::new() };
        Self { slots: sizes.iter().map(slot).collect() }
    }

    pub(super) fn is_used(&self) -> bool {
        self.slots.iter().any(|slot| !slot.members.is_empty())
    }

    fn pools(&self, scene: &Scene, kind: usize, number: usize) -> Vec<Pool> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| !slot.members.is_empty());
        let pool = |(at, slot): (usize, &Slot)| {
            let other = self.slots.get(1 - at);
            let level = other.map_or(0, |other| scene.level(&other.members));
            let round = scene.round(slot.size, level, &slot.members);
            let round = round.expect("what was placed fits");
            let member = |&(item, rate): &(usize, f64)| {
                let (batch, latency) = scene.batch(slot.size, level, (item, rate), round);
                Member {
                    demand: scene.items[item].demand,
                    rate,
                    batch,
                    occupancy: latency.0 as f64 / round.0 as f64,
                    latency: round + latency,
                }
            };
            Pool {
                kind,
                gpus: vec![number],
                share: scene.sizes[slot.size],
                round: Some(round),
                members: slot.members.iter().map(member).collect(),
            }
        };
        used.map(pool).collect()
    }
}
