//! The models and suites that there are: packaged models, files of users, and files that a suite or a flag names.

mod decoders;
mod entries;
mod named_files;
mod packaged;
mod reference_files;
mod sample_fit;
mod suite_models;
mod suite_tables;
mod suites;
mod user_files;
mod usual_sizes;

pub use entries::{Entry, Place, find_name, read_catalogue};
pub use named_files::{models_of_files, models_of_paths, path_of};
pub use suite_models::add_models_of_suite;
pub use suite_tables::{ALL, is_chosen, is_named, table_of};
pub use suites::read_suite;
pub use user_files::is_model_file;
pub use usual_sizes::{attempts, flags};
