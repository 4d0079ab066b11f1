//! The methods of planning by their names.

use fermata_plan::Method;

/// A method as users know it.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) about: &'static str,
}

/// All there are.
pub(super) const ALL: &[Named] = &[
    Named {
        name: "pools",
        method: Method::Pools,
        about: "as few pools as memory allows, in which any GPU runs any model",
    },
    Named {
        name: "squishy",
        method: Method::Squishy,
        about: "rounds on each GPU, packed as Nexus does",
    },
    Named {
        name: "exact",
        method: Method::Exact,
        about: "rounds on each GPU, on the fewest GPUs there can be",
    },
    Named {
        name: "elastic",
        method: Method::Elastic,
        about: "rounds on shares of GPUs, by gpulet's elastic partitioning",
    },
    Named {
        name: "shares",
        method: Method::Shares,
        about: "rounds on shares of GPUs, on the fewest that are found",
    },
];

/// The method of this name.
pub(super) fn parse(name: &str) -> Result<Method, String> {
    let found = ALL.iter().find(|named| named.name == name).map(|named| named.method);
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|named| named.name).collect();
        format!("use {}", names.join(", "))
    })
}

/// The name of a method.
pub(super) fn name(method: Method) -> &'static str {
    let named = ALL.iter().find(|named| named.method == method);
    named.expect("every method has a name").name
}
