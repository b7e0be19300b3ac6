//! Sizes of dimensions that a model leaves open: the sizes of one case, and lists that are measured in turn.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// The sizes of a case by the names of their dimensions, as the suite or a flag gives them: `height=224,width=224`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dims(pub BTreeMap<String, usize>);

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(|(name, size)| format!("{name}={size}")).collect();
        f.write_str(&sizes.join(","))
    }
}

impl FromStr for Dims {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<Sweep>()?.steps(|_| true)?.as_slice() {
            [one] => Ok(one.clone()),
            _ => bail!("{text:?} has several sizes of one dimension"),
        }
    }
}

impl From<Dims> for String {
    fn from(dims: Dims) -> Self {
        dims.to_string()
    }
}

impl TryFrom<String> for Dims {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// For each dimension one size, or a list of them: `height = [224, 384]`, or `height=224,384` as a flag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sweep(BTreeMap<String, Sizes>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Sizes {
    One(usize),
    List(Vec<usize>),
}

impl Sizes {
    fn all(&self) -> &[usize] {
        match self {
            Sizes::One(size) => std::slice::from_ref(size),
            Sizes::List(sizes) => sizes,
        }
    }
}

impl Sweep {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// The same, with the sizes of `other` for the dimensions that it names.
    #[must_use]
    pub(crate) fn with(&self, other: &Sweep) -> Self {
        Sweep(self.0.iter().chain(&other.0).map(|(name, sizes)| (name.clone(), sizes.clone())).collect())
    }

    /// The same, without the dimensions that `other` names.
    #[must_use]
    pub(crate) fn without(&self, other: &Sweep) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !other.0.contains_key(*name));
        Sweep(kept.map(|(name, sizes)| (name.clone(), sizes.clone())).collect())
    }

    /// The sizes of each case, for the known dimensions. Lists are paired: the first size of one list goes with the
    /// first size of another. A single size goes with all sizes of the lists.
    ///
    /// # Errors
    /// Two lists have different lengths, a list is empty, a size is 0, or a name has a comma, so that it is unreadable.
    pub(crate) fn steps(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<Dims>> {
        let known: Vec<(&String, &[usize])> =
            self.0.iter().filter(|(name, _)| is_known(name)).map(|(name, sizes)| (name, sizes.all())).collect();
        let count = known.iter().map(|(_, sizes)| sizes.len()).max().unwrap_or(1);
        for (name, sizes) in &known {
            ensure!(!sizes.is_empty() && !sizes.contains(&0), "the sizes of {name} are numbers from 1");
            ensure!(!name.contains(','), "{name:?} has a comma: write the input and the place of the size, as in x.2");
            ensure!(
                [1, count].contains(&sizes.len()),
                "{name} has {} sizes, and another dimension has {count}: lists of sizes are paired, so give as many, or one",
                sizes.len()
            );
        }
        let step = |place: usize| known.iter().map(move |(name, sizes)| ((*name).clone(), sizes[place % sizes.len()]));
        Ok((0..count).map(|place| Dims(step(place).collect())).collect())
    }
}

impl FromStr for Sweep {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut lists: Vec<(String, Vec<usize>)> = Vec::new();
        for word in text.split(',').filter(|_| !text.is_empty()) {
            let (name, size) = word.rsplit_once('=').map_or((None, word), |(name, size)| (Some(name), size));
            let size = size.trim().parse().ok().filter(|size| *size > 0);
            let size = size.with_context(|| {
                format!("{text:?} is not a size; write NAME=SIZE, as in height=640, or NAME=SIZE,SIZE for several")
            })?;
            match (name, lists.last_mut()) {
                (Some(name), _) => {
                    let name = name.trim().to_owned();
                    ensure!(
                        lists.iter().all(|(other, _)| *other != name),
                        "{text:?} names {name} twice; write {name}=SIZE,SIZE for several sizes"
                    );
                    lists.push((name, vec![size]));
                }
                (None, Some((_, sizes))) => sizes.push(size),
                (None, None) => {
                    bail!("{text:?} does not say the name of a dimension; write NAME=SIZE, as in height=640")
                }
            }
        }
        let sizes = |sizes: Vec<usize>| if let [one] = sizes[..] { Sizes::One(one) } else { Sizes::List(sizes) };
        Ok(Sweep(lists.into_iter().map(|(name, list)| (name, sizes(list))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Result<Vec<String>> {
        Ok(text.parse::<Sweep>()?.steps(|name| name != "unknown")?.iter().map(Dims::to_string).collect())
    }

    #[test]
    fn lists_of_sizes_go_together_and_single_ones_with_each() {
        assert_eq!(steps("height=224").unwrap(), ["height=224"]);
        assert_eq!(steps("height=224,384").unwrap(), ["height=224", "height=384"]);
        let both = ["height=1,n=5,width=3", "height=2,n=5,width=4"];
        assert_eq!(steps("height=1,2,width=3,4,n=5").unwrap(), both);
        assert_eq!(steps("unknown=7,8").unwrap(), [""]);
        assert!(
            steps("height=1,height=2").unwrap_err().to_string().ends_with("write height=SIZE,SIZE for several sizes")
        );
        assert!(
            steps("a=1,2,b=1,2,3").unwrap_err().to_string().starts_with("a has 2 sizes, and another dimension has 3")
        );
        for wrong in ["height", "height=", "height=0", "=,", "4", "height=4,x"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        let dims = Dims(BTreeMap::from([("x.2".to_owned(), 48), ("height".to_owned(), 64)]));
        let text = serde_json::to_string(&dims).unwrap();
        assert_eq!(text, r#""height=64,x.2=48""#);
        assert_eq!(serde_json::from_str::<Dims>(&text).unwrap(), dims);
        assert_eq!(Dims::try_from(String::new()).unwrap(), Dims::default());
        let sweep: Sweep = toml::from_str("height = [64, 96]\nwidth = 32").unwrap();
        assert_eq!(sweep, "width=32,height=64,96".parse().unwrap());
        let unreadable: Sweep = toml::from_str("'Max(1, n)' = 3").unwrap();
        assert!(unreadable.steps(|_| true).unwrap_err().to_string().contains("as in x.2"));
    }
}
