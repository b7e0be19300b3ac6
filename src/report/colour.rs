//! One colour per backend, the same in every chart, report and year.

use std::collections::BTreeMap;

use serde::Serialize;

/// A colour on white, and its lighter form on black.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Colour {
    pub light: &'static str,
    pub dark: &'static str,
}

const fn colour(light: &'static str, dark: &'static str) -> Colour {
    Colour { light, dark }
}

/// After Okabe & Ito 2008, "Color universal design": told apart also by colour-blind readers.
const OF_BACKEND: [(&str, Colour); 7] = [
    ("ort", colour("#0072b2", "#4ba8e8")),
    ("tch", colour("#d55e00", "#f58a42")),
    ("candle", colour("#009e73", "#2fcf9f")),
    ("tract", colour("#b8568f", "#e59ac6")),
    ("openvino", colour("#8a6d00", "#e8c63e")),
    ("jax", colour("#4b3d8f", "#a99cf0")),
    ("null", colour("#6b7280", "#9ca3af")),
];

/// Colours of series that are no backends, such as machines, by their order.
pub const PLACES: [Colour; 6] = [
    colour("#0072b2", "#4ba8e8"),
    colour("#d55e00", "#f58a42"),
    colour("#009e73", "#2fcf9f"),
    colour("#b8568f", "#e59ac6"),
    colour("#8a6d00", "#e8c63e"),
    colour("#4b3d8f", "#a99cf0"),
];

/// For backends that have no colour of their own, in the order of their names.
const OTHERS: [Colour; 4] = [
    colour("#0b7a75", "#56d3cd"),
    colour("#a23b3b", "#f08a8a"),
    colour("#56700a", "#b5d957"),
    colour("#33658a", "#8cc1e8"),
];

/// Every colour that a series of a figure may have, each once.
pub fn all() -> Vec<Colour> {
    let mut all: Vec<Colour> = OF_BACKEND.into_iter().map(|(_, colour)| colour).collect();
    for colour in PLACES.into_iter().chain(OTHERS) {
        if !all.contains(&colour) {
            all.push(colour);
        }
    }
    all
}

/// The colours of these backends.
pub fn colours<'a>(backends: impl Iterator<Item = &'a str>) -> BTreeMap<String, Colour> {
    let names: std::collections::BTreeSet<&str> = backends.collect();
    let mut others = OTHERS.into_iter().cycle();
    let of = |name: &str| OF_BACKEND.iter().find(|(known, _)| *known == name).map(|(_, colour)| *colour);
    names.into_iter().map(|name| (name.to_owned(), of(name).or_else(|| others.next()).unwrap_or(OTHERS[0]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_keeps_its_colour_whatever_is_beside_it() {
        let alone = colours(["tch"].into_iter());
        let among = colours(["ort", "tch", "tch", "mine", "yours"].into_iter());
        assert_eq!(alone["tch"], among["tch"]);
        let different: std::collections::HashSet<&str> = among.values().map(|colour| colour.light).collect();
        assert_eq!((among.len(), different.len()), (4, 4));
    }
}
