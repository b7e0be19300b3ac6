//! A node with what is known of its inputs: attributes and axes. Who walks the graph adds the operator to errors.

use super::value::Value;
use crate::onnx::proto::NodeProto;
use anyhow::{Context, Result};

pub(super) struct Node<'a> {
    pub proto: &'a NodeProto,
    /// None for an input that is left out.
    pub inputs: Vec<Option<&'a Value>>,
}

impl<'a> Node<'a> {
    pub fn operator(&self) -> &'a str {
        &self.proto.op_type
    }

    /// # Errors
    /// The node has no such input.
    pub fn input(&self, place: usize) -> Result<&'a Value> {
        self.optional(place).with_context(|| format!("input {place} is missing"))
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
    pub fn numbers(&self, place: usize) -> Result<&'a [i64]> {
        self.input(place)?.known.as_deref().context("its shape depends on the values of the inputs")
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

    /// Numbers that are an attribute in older operator sets and an input in newer ones. Returns `None` if they are neither.
    ///
    /// # Errors
    /// As [`numbers`](Self::numbers).
    pub fn ints_or_input(&self, name: &str, place: usize) -> Result<Option<&'a [i64]>> {
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
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_begin = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let place = usize::try_from(from_begin).ok().filter(|&place| place < rank);
        place.with_context(|| format!("no axis {axis} of {rank}"))
    }

    /// As [`axis`](Self::axis), for several.
    pub fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        axes.iter().map(|&axis| self.axis(axis, rank)).collect()
    }

    /// As [`size`](Self::size), for several.
    pub fn sizes(&self, numbers: &[i64]) -> Result<Vec<usize>> {
        numbers.iter().map(|&number| self.size(number)).collect()
    }

    /// # Errors
    /// The number is negative.
    pub fn size(&self, number: i64) -> Result<usize> {
        usize::try_from(number).ok().with_context(|| format!("a size of {number}"))
    }
}
