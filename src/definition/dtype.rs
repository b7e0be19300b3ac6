//! The element types that models compute in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use super::unknown_name::UnknownName;

/// The element type that a model computes in. The usual names of other libraries are read as well, such as `float16`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(ascii_case_insensitive, parse_err_ty = UnknownName, parse_err_fn = unknown)]
pub enum Dtype {
    #[default]
    #[serde(alias = "fp32", alias = "float32", alias = "float")]
    #[strum(to_string = "f32", serialize = "fp32", serialize = "float32", serialize = "float")]
    F32,
    #[serde(alias = "fp16", alias = "float16", alias = "half")]
    #[strum(to_string = "f16", serialize = "fp16", serialize = "float16", serialize = "half")]
    F16,
    #[serde(alias = "bfloat16")]
    #[strum(to_string = "bf16", serialize = "bfloat16")]
    Bf16,
    #[serde(alias = "int8")]
    #[strum(to_string = "i8", serialize = "int8")]
    I8,
}

impl Dtype {
    /// All dtypes, the widest first.
    pub const ALL: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8];

    /// The name in ids and records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown(name: &str) -> UnknownName {
    UnknownName::new("dtype", name, Dtype::VARIANTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_known_by_the_names_of_other_libraries() {
        for (dtype, names) in [
            (Dtype::F32, ["f32", "FP32", "float32", "float"].as_slice()),
            (Dtype::F16, &["f16", "fp16", "Float16", "half"]),
            (Dtype::Bf16, &["bf16", "BFloat16"]),
            (Dtype::I8, &["i8", "int8"]),
        ] {
            assert!(names.iter().all(|name| name.parse() == Ok(dtype)), "{dtype}");
            let in_files = |name: &&str| toml::Value::from(name.to_lowercase()).try_into() == Ok(dtype);
            assert!(names.iter().all(in_files), "{dtype}");
            assert_eq!(dtype.to_string(), names[0]);
        }
        let error = "f8".parse::<Dtype>().unwrap_err();
        assert_eq!(error.to_string(), "unknown dtype \"f8\"; there are f32, f16, bf16, i8");
    }
}
