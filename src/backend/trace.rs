//! What a runtime's own profile says about one call: which operator ran where, and in which element type.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::Dtype;

/// What a runtime's profile says about one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The provider of the device that was asked for.
    pub asked_for: String,
    /// How many nodes of each operator ran on each provider, by provider.
    pub nodes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The operators that compute products, by the dtype of these; `None` for an element type that is no [`Dtype`].
    pub products: BTreeMap<Option<Dtype>, BTreeSet<String>>,
}

impl Trace {
    /// The fraction of the nodes that ran on the provider that was asked for.
    pub fn share(&self) -> f64 {
        let count = |operators: &BTreeMap<String, usize>| operators.values().sum::<usize>() as f64;
        let all: f64 = self.nodes.values().map(count).sum();
        self.nodes.get(&self.asked_for).map_or(0.0, count) / all.max(1.0)
    }

    /// The operators that ran elsewhere: `Gather on CPUExecutionProvider`.
    pub fn elsewhere(&self) -> Vec<String> {
        let others = self.nodes.iter().filter(|(name, _)| **name != self.asked_for);
        others
            .flat_map(|(name, operators)| operators.keys().map(move |operator| format!("{operator} on {name}")))
            .collect()
    }

    /// Operators whose products are computed in another dtype, and that dtype; `None` if there are none.
    ///
    /// For i8 one product is enough: products with weights are quantised, and products of two activations are not.
    pub fn products_not_in(&self, dtype: Dtype) -> Option<(Dtype, Vec<&str>)> {
        if dtype == Dtype::I8 && self.products.contains_key(&Some(dtype)) {
            return None;
        }
        let others = self.products.iter().filter_map(|(computed_in, operators)| Some(((*computed_in)?, operators)));
        let mut others = others.filter(|(computed_in, _)| *computed_in != dtype);
        others.next().map(|(computed_in, operators)| (computed_in, operators.iter().map(String::as_str).collect()))
    }
}
