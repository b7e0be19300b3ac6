//! The models and suites that exist: packaged models, users' files, and files that a suite or a flag names.
//!
//! It takes the folders of models and suites, and names or paths that a user gave. It gives a
//! [`Model`](crate::definition::Model) for each, or the reason why a file is not one. `fixture` reads the weights, and
//! `selection` decides which cases run.

mod decoders;
mod entries;
mod gguf_files;
mod inherited;
mod named_files;
mod operators;
mod packaged;
mod recorded_tensors;
mod suite_models;
mod suites;
mod user_files;
mod usual_sizes;

pub use entries::{Entry, Place, find_name, packaged_names, read_catalogue};
pub use inherited::inherit_inputs;
pub use named_files::{models_of_files, models_of_paths, path_of};
pub use operators::{OPERATORS, operators};
pub use recorded_tensors::tensor_names;
pub use suite_models::{ALL, add_models_of_suite, is_chosen, is_named, table_of};
pub use suites::read_suite;
pub use user_files::{ask_for_module_inputs, files_of, is_graph, is_model_file, is_module, read_toml};
pub use usual_sizes::{attempts, flags, shell_word};
