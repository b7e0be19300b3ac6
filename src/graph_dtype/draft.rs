//! A graph that is being written: its nodes, and its initializers before their values are there.

use std::collections::HashSet;

use super::planned::{Content, Planned};
use crate::onnx::proto::NodeProto;

pub(super) struct Draft {
    /// Names of values that are taken.
    taken: HashSet<String>,
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<Planned>,
}

impl Draft {
    /// A graph without nodes, whose values must not have a name that is taken.
    pub fn new<'a>(taken: impl Iterator<Item = &'a String>, initializers: Vec<Planned>) -> Self {
        Draft { taken: taken.cloned().collect(), nodes: Vec::new(), initializers }
    }

    /// Takes a new name: `name.suffix`, with a number if that is taken.
    pub fn fresh(&mut self, name: &str, suffix: &str) -> String {
        let first = format!("{name}.{suffix}");
        let mut candidates = std::iter::once(first.clone()).chain((2_u64..).map(|number| format!("{first}.{number}")));
        let fresh = candidates.find(|name| !self.taken.contains(name)).unwrap_or(first);
        self.taken.insert(fresh.clone());
        fresh
    }

    /// Adds an initializer.
    pub fn add(&mut self, name: &str, dims: &[i64], content: Content) {
        self.initializers.push(Planned { name: name.to_owned(), dims: dims.to_vec(), content });
    }
}
