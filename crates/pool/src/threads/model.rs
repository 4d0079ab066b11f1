//! A thread that has some of a pool's models: their requests, and what is decided about them.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use fermata_core::{Request, Time};
use fermata_dispatch::{Actions, Network, Rules, Shard};
use fermata_engine::thread::be_punctual;
use fermata_scheduler::{Bell, Room, Runtime, ShardEnd};

use super::rank::Report;
use super::{Closing, Door};
use crate::effects::Effects;
use crate::margin::Lateness;
use crate::message::Message;

/// One step takes at most this many messages: promises and timers must not wait for a stream of
/// messages.
const MESSAGES_OF_STEP: usize = 64;

pub(super) struct ModelThread {
    index: usize,
    shard: Shard,
    end: ShardEnd,
    inbox: Receiver<Message>,
    bell: Arc<Bell>,
    effects: Effects,
    actions: Actions,
    rank: Door<Report>,
    closing: Arc<Closing>,
    /// It has told that nothing is left.
    left: bool,
    lateness: Lateness,
    runtime: Arc<dyn Runtime>,
}

impl ModelThread {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one thing, named at its only maker"
    )]
    pub(super) fn new(
        room: &Room,
        rules: Rules,
        end: ShardEnd,
        inbox: Receiver<Message>,
        bell: Arc<Bell>,
        effects: Effects,
        rank: Door<Report>,
        closing: Arc<Closing>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        Self {
            index: room.index,
            shard: Shard::new(rules, Network::default(), room.index, room.shards, room.classes),
            end,
            inbox,
            bell,
            effects,
            actions: Actions::default(),
            rank,
            closing,
            left: false,
            lateness: Lateness::new(),
            runtime,
        }
    }

    /// Runs until it was stopped and neither it nor another has anything left.
    pub(super) fn drive(mut self) {
        be_punctual();
        while !self.closing.is_over() {
            let busy = self.step();
            if !self.left && self.effects.is_done() {
                self.left = true;
                self.closing.leave();
            } else if !busy {
                self.sleep();
            }
        }
        self.rank.send(Report::Ended);
    }

    /// Takes what has come, and does what is due. False, if there was nothing.
    fn step(&mut self) -> bool {
        if let Some(signal) = self.end.new_signal() {
            self.shard.set_signal(signal);
        }
        let now = self.runtime.now();
        let mut busy = false;
        for _ in 0..MESSAGES_OF_STEP {
            let Ok(message) = self.inbox.try_recv() else { break };
            busy = true;
            self.receive(now, message);
        }
        while let Some(promise) = self.end.next_promise() {
            busy = true;
            self.shard.granted(now, promise, &mut self.actions, &mut self.end);
        }
        if self.shard.next_wakeup() <= now {
            busy = true;
            self.shard.wake(now, &mut self.actions, &mut self.end);
        }
        if busy {
            // The hub was told of every batch before an executor can be done with it: the news are
            // on their way.
            self.effects.perform(&mut self.actions);
            self.end.ring();
        }
        busy
    }

    fn receive(&mut self, now: Time, message: Message) {
        let (actions, end) = (&mut self.actions, &mut self.end);
        match message {
            Message::Arrive { model, ticket } => {
                let (deadline, id, kind) = (ticket.deadline, ticket.id, ticket.kind);
                let request = Request { deadline, id, arrival: now, kind };
                self.effects.keep(ticket);
                self.shard.arrive(now, model, request, actions, end);
            }
            Message::Ran(ran) => {
                if let Some(spec) = self.effects.ran(now, &ran) {
                    self.shard.set_profile(now, ran.model, &spec, end);
                }
            }
            Message::Cancel { model, request, deadline } => {
                if self.effects.has(request) {
                    self.shard.cancel(now, model, (deadline, request), actions, end);
                }
            }
            Message::Add { model, spec, sessions, profiles, reply, .. } => {
                self.shard.add(now, model, &spec, end);
                self.effects.install(model, spec, sessions, profiles);
                // The thread that adds the model waits for it.
                let _ = reply.send(());
            }
            Message::Remove { model } => {
                self.shard.remove(model, actions, end);
                self.effects.uninstall(model);
            }
            Message::Respec { model, spec } => {
                if let Some(spec) = self.effects.respec(model, &spec) {
                    self.shard.set_profile(now, model, &spec, end);
                }
            }
            Message::Respread { model, spread } => {
                if let Some(spec) = self.effects.respread(model, spread) {
                    self.shard.set_profile(now, model, &spec, end);
                }
            }
            Message::Join { .. } | Message::Leave { .. } | Message::Lost { .. } => {
                unreachable!("a pool on threads keeps the executors that it began with")
            }
            Message::Stop => self.effects.stop(),
        }
    }

    /// Nothing to do until something comes, or is due. Learns how punctually it is woken.
    fn sleep(&mut self) {
        let due = self.shard.next_wakeup();
        self.runtime.sleep(&self.bell, due, &|| {
            !self.inbox.is_empty() || self.end.has_work() || self.closing.is_over()
        });
        let now = self.runtime.now();
        if due <= now
            && let Some(by) = self.lateness.note(now - due)
        {
            self.rank.send(Report::Late { index: self.index, by });
        }
    }
}
