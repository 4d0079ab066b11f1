//! Which policies are compared, and what spare executors are for under each.

use fermata_dispatch::{Policy, Spare};
use fermata_files::InputError;
use fermata_server::spare::spare_of;

use crate::input::says_spare;

/// A policy under the name by which it was asked for.
#[derive(Clone, Debug)]
pub(super) struct NamedPolicy {
    pub(super) name: String,
    pub(super) policy: Policy,
}

/// The policies of these names, each once; `all` is every policy that needs no parameter.
pub(super) fn choose(names: &[String]) -> Result<Vec<NamedPolicy>, InputError> {
    let names = names.iter().flat_map(|name| match name.as_str() {
        "all" => Policy::names().to_vec(),
        one => vec![one],
    });
    let mut chosen = Vec::new();
    for name in names {
        let policy = name.parse().map_err(|reason: String| {
            let known = Policy::names().join(", ");
            let reason = format!("{reason}: use {known}, timeout:5ms, timeout:20% or all");
            InputError::Argument { name: "--policy", reason }
        })?;
        chosen.push(NamedPolicy { name: name.to_owned(), policy });
    }
    Ok(without_twins(chosen))
}

/// The same with the use of spare executors that the flag says; without it, that of the name, and
/// then that of the file. A policy that has one is named by it from then on.
pub(super) fn settle(
    policies: Vec<NamedPolicy>,
    flag: Option<Spare>,
    file: Option<Spare>,
) -> Vec<NamedPolicy> {
    let settled = policies.into_iter().map(|NamedPolicy { name, policy }| {
        if spare_of(policy).is_none() {
            return NamedPolicy { name, policy };
        }
        let policy = match flag.or(file.filter(|_| !says_spare(&name))) {
            Some(spare) => policy.with_spare(spare),
            None => policy,
        };
        NamedPolicy { name: policy.to_string(), policy }
    });
    without_twins(settled.collect())
}

/// The first of each name.
fn without_twins(policies: Vec<NamedPolicy>) -> Vec<NamedPolicy> {
    let mut kept: Vec<NamedPolicy> = Vec::new();
    for policy in policies {
        if kept.iter().all(|other| other.name != policy.name) {
            kept.push(policy);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str], flag: Option<Spare>, file: Option<Spare>) -> Vec<String> {
        let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
        let settled = settle(choose(&asked).unwrap(), flag, file);
        for NamedPolicy { name, policy } in &settled {
            assert_eq!(name.parse(), Ok(*policy), "{name}");
        }
        settled.into_iter().map(|policy| policy.name).collect()
    }

    #[test]
    fn the_flag_counts_more_than_the_name_and_the_name_more_than_the_file() {
        let (latency, release) = (Some(Spare::Latency), Some(Spare::Release));
        assert_eq!(names(&["fermata"], None, None), ["fermata"]);
        assert_eq!(names(&["fermata"], None, release), ["fermata:release"]);
        assert_eq!(names(&["fermata"], latency, release), ["fermata"]);
        assert_eq!(names(&["fermata:release"], None, latency), ["fermata:release"]);
        assert_eq!(names(&["fermata:latency"], None, release), ["fermata"]);
        assert_eq!(names(&["fermata:release"], latency, None), ["fermata"]);
    }

    #[test]
    fn policies_without_a_price_stay_as_they_are_and_twins_run_once() {
        let release = Some(Spare::Release);
        let asked = ["eager", "fermata", "timeout:5ms", "fermata:release", "tfserving"];
        let settled = ["eager", "fermata:release", "timeout:5ms", "tfserving"];
        assert_eq!(names(&asked, release, None), settled);
    }
}
