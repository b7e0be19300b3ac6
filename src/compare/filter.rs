//! The filters that choose the cases to compare.

use std::convert::Infallible;

use anyhow::{Result, bail};
use clap::Args;

use crate::definition::{Case, Dtype, Phase, usual_backend};
use crate::run_data::Record;

/// The flags that choose among the measured cases. They have the names of the flags of `run`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct CaseFilter {
    /// Only these models, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub model: Vec<String>,
    /// Only these variants, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub variant: Vec<String>,
    /// Only these backends, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = measured_backend)]
    pub backend: Vec<String>,
    /// Only these devices, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub device: Vec<String>,
    /// Only these dtypes, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", ignore_case = true)]
    pub dtype: Vec<Dtype>,
    /// Only these phases, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", ignore_case = true)]
    pub phase: Vec<Phase>,
    /// Only these batch sizes, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub batch_sizes: Vec<usize>,
    /// Only these sequence lengths, separated by commas; models without one stay
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub seq_lens: Vec<usize>,
}

impl CaseFilter {
    /// Checks that each named model and variant, and one of the named backends, is among these cases: a name that no case
    /// has would leave out nothing, or everything. Other backends may be predicted.
    ///
    /// # Errors
    /// No case has such a name.
    pub fn check_names<'a>(&self, cases: impl Iterator<Item = &'a Record> + Clone) -> Result<()> {
        let unknown = |names: &[String], of: fn(&Record) -> &String| {
            names.iter().find(|name| cases.clone().all(|case| of(case) != *name)).cloned()
        };
        let model = unknown(&self.model, |it| &it.model).map(|name| ("--model", name));
        let variant = || unknown(&self.variant, |it| &it.variant).map(|name| ("--variant", name));
        let has_no_backend = cases.clone().all(|case| !self.backend.contains(&case.backend));
        let backend = || self.backend.first().filter(|_| has_no_backend).map(|name| ("--backend", name.clone()));
        match model.or_else(variant).or_else(backend) {
            Some((flag, name)) => bail!("`{flag} {name}`: no measured case has this name"),
            None => Ok(()),
        }
    }

    pub fn matches(&self, case: &Case) -> bool {
        is_among(&self.model, &case.model)
            && is_among(&self.variant, &case.variant)
            && is_among(&self.backend, &case.backend)
            && is_among(&self.device, &case.device)
            && is_among(&self.dtype, &case.dtype)
            && is_among(&self.phase, &case.phase)
            && is_among(&self.batch_sizes, &case.batch_size)
            && case.sequence_length.is_none_or(|length| is_among(&self.seq_lens, &length))
    }
}

/// The name of a backend as it is in records. A name that `run` would refuse is kept: it may be the engine of another program.
pub fn measured_backend(text: &str) -> std::result::Result<String, Infallible> {
    Ok(usual_backend(text).unwrap_or_else(|_| text.to_owned()))
}

/// An empty list is no restriction.
fn is_among<T: PartialEq>(list: &[T], value: &T) -> bool {
    list.is_empty() || list.contains(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::empty_record;

    #[test]
    fn a_case_must_be_in_every_list_that_there_is() {
        let case = empty_record().case();
        let with = |model: &str, batch_sizes: &[usize]| CaseFilter {
            model: vec![model.into()],
            batch_sizes: batch_sizes.to_vec(),
            seq_lens: vec![128],
            ..CaseFilter::default()
        };
        assert!(CaseFilter::default().matches(&case));
        assert!(with("m", &[1, 8]).matches(&case) && with("m", &[]).matches(&case));
        assert!(!with("n", &[1]).matches(&case) && !with("m", &[8]).matches(&case));
        assert!(!with("m", &[]).matches(&Case { sequence_length: Some(32), ..case }));
        let measured = [empty_record()];
        assert!(with("m", &[]).check_names(measured.iter()).is_ok());
        let failure = with("mm", &[]).check_names(measured.iter()).unwrap_err();
        assert_eq!(failure.to_string(), "`--model mm`: no measured case has this name");
        let of = |backend: &[String]| CaseFilter { backend: backend.to_vec(), ..CaseFilter::default() };
        let failure = of(&["orrt".into()]).check_names(measured.iter()).unwrap_err();
        assert_eq!(failure.to_string(), "`--backend orrt`: no measured case has this name");
        assert!(of(&["orrt".into(), measured[0].backend.clone()]).check_names(measured.iter()).is_ok());
    }
}
