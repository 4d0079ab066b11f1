//! What the spare executors of each pool are for.

use fermata_dispatch::{Policy, Spare, Window};

/// The use of spare executors under a policy; `None` under one that knows of none.
pub fn spare_of(policy: Policy) -> Option<Spare> {
    match policy.rules()?.window {
        Window::Priced(spare) => Some(spare),
        _ => None,
    }
}

/// The policy of a pool, with the use of spare executors that was said. Where nothing was said, it
/// follows from what becomes of them: a plan takes them away, and a pool of fixed size keeps them.
pub(crate) fn policy_of(policy: Policy, said: Option<Spare>, is_planned: bool) -> Policy {
    let usual = if is_planned { Spare::Release } else { Spare::Latency };
    policy.with_spare(said.unwrap_or(usual))
}

#[cfg(test)]
mod tests {
    use fermata_dispatch::Rules;

    use super::*;

    #[test]
    fn fixed_pools_use_spare_executors_and_planned_ones_release_them_unless_it_is_said() {
        let spare = |said, is_planned| spare_of(policy_of(Policy::FERMATA, said, is_planned));
        assert_eq!(spare(None, false), Some(Spare::Latency));
        assert_eq!(spare(None, true), Some(Spare::Release));
        for said in [Spare::Latency, Spare::Release] {
            for is_planned in [false, true] {
                assert_eq!(spare(Some(said), is_planned), Some(said));
            }
        }
        let eager = Policy::Rules(Rules::EAGER);
        assert_eq!(policy_of(eager, Some(Spare::Release), true), eager);
        assert_eq!(spare_of(eager), None);
    }
}
