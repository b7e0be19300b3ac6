//! One colour per backend, the same in every chart, report and year.

use std::collections::{BTreeMap, BTreeSet};

use crate::backend::registry::{ENTRIES, real};

/// A colour on white, and its lighter form on black.
pub type Colour = [&'static str; 2];

/// For backends that the registry does not have, in the order of their names.
const OTHERS: [Colour; 5] = [
    ["#4b3d8f", "#a99cf0"],
    ["#0b7a75", "#56d3cd"],
    ["#a23b3b", "#f08a8a"],
    ["#56700a", "#b5d957"],
    ["#33658a", "#8cc1e8"],
];

/// Colours of series that are no backends, such as machines, by their order.
pub fn places() -> Vec<Colour> {
    real().map(|entry| entry.colour).chain(OTHERS).collect()
}

/// The colours of these backends: those of the registry, after Okabe & Ito 2008, "Color universal design".
pub fn colours<'a>(backends: impl Iterator<Item = &'a str>) -> BTreeMap<String, Colour> {
    let mut others = OTHERS.into_iter().cycle();
    let of = |name: &str| ENTRIES.iter().find(|entry| entry.name == name).map(|entry| entry.colour);
    let names: BTreeSet<&str> = backends.collect();
    names.into_iter().filter_map(|name| Some((name.to_owned(), of(name).or_else(|| others.next())?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_keeps_its_colour_whatever_is_beside_it() {
        let alone = colours(["tch"].into_iter());
        let among = colours(["ort", "tch", "tch", "mine", "yours"].into_iter());
        assert_eq!(alone["tch"], among["tch"]);
        let different: std::collections::HashSet<&str> = among.values().map(|colour| colour[0]).collect();
        assert_eq!((among.len(), different.len()), (4, 4));
    }
}
