//! A node with what is known of its inputs: attributes, axes, and errors that name the operator.

use super::value::Value;
use crate::onnx::proto::NodeProto;

pub(super) struct Node<'a> {
    pub proto: &'a NodeProto,
    /// None for an input that is left out.
    pub inputs: Vec<Option<&'a Value>>,
}

impl<'a> Node<'a> {
    pub fn operator(&self) -> &'a str {
        &self.proto.op_type
    }

    /// An error that says which operator it is about.
    pub fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("{} {:?}: {what}", self.proto.op_type, self.proto.name)
    }

    /// # Errors
    /// The node has no such input.
    pub fn input(&self, place: usize) -> Result<&'a Value, String> {
        self.optional(place).ok_or_else(|| self.wrong(format_args!("input {place} is missing")))
    }

    pub fn optional(&self, place: usize) -> Option<&'a Value> {
        self.inputs.get(place).copied().flatten()
    }

    /// All inputs that are there.
    pub fn given(&self) -> impl Iterator<Item = &'a Value> + '_ {
        self.inputs.iter().copied().flatten()
    }

    /// The numbers of an input that shapes are made of.
    ///
    /// # Errors
    /// They depend on the values of the graph's inputs.
    pub fn numbers(&self, place: usize) -> Result<&'a [i64], String> {
        let unknown = || self.wrong("its shape depends on the values of the inputs");
        self.input(place)?.known.as_deref().ok_or_else(unknown)
    }

    pub fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.proto.int(name).unwrap_or(otherwise)
    }

    pub fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.proto.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub fn text(&self, name: &str) -> Option<&'a [u8]> {
        self.proto.attribute(name)?.s.as_deref()
    }

    /// Numbers that are an attribute in older operator sets and an input in newer ones; none where they are neither.
    ///
    /// # Errors
    /// As [`numbers`](Self::numbers).
    pub fn ints_or_input(&self, name: &str, place: usize) -> Result<Option<&'a [i64]>, String> {
        match (self.ints(name), self.optional(place)) {
            (Some(ints), _) => Ok(Some(ints)),
            (None, Some(_)) => self.numbers(place).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// A place from 0 to `rank`, of a number that counts from the end where it is negative.
    ///
    /// # Errors
    /// There is no such axis.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, String> {
        let from_begin = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let place = usize::try_from(from_begin).ok().filter(|&place| place < rank);
        place.ok_or_else(|| self.wrong(format_args!("no axis {axis} of {rank}")))
    }

    /// # Errors
    /// The number is negative.
    pub fn size(&self, number: i64) -> Result<usize, String> {
        usize::try_from(number).map_err(|_| self.wrong(format_args!("a size of {number}")))
    }
}
