//! The tests of the package through its commands, in one executable: with every backend linked, each takes a hundred
//! megabytes. `cargo test --test integration duel::` runs those of one module.

mod bench_script;
mod blocks;
mod boundaries;
mod compare;
mod convert;
mod cost;
mod criterion_contract;
mod devices;
mod document_tables;
mod documents;
mod duel;
mod evaluation;
mod fleet;
mod fleet_page;
mod gguf;
mod harness;
mod image_folder;
mod import;
mod installed;
mod interruption;
mod judges;
#[cfg(feature = "tch")]
mod libtorch_operators;
mod load;

mod named_files;
mod openvino;
mod outcomes;
mod own_decoders;
mod predict;
mod preparation;
mod processes;
mod profile;
mod profile_page;
mod profiled_graphs;
mod profiled_sessions;
mod quality;
mod recommend;
mod references;
#[cfg(feature = "http-load")]
mod remote;
mod report;
mod rooms;
mod same_work;
mod selftest;
mod service;
mod store;
mod support;
mod threads;
mod timed_samples;
#[cfg(feature = "torch")]
mod torch_compiled;
#[cfg(feature = "torch")]
mod torch_environments;
#[cfg(feature = "torch")]
mod torch_modules;
mod user_models;
mod variants;
mod workers;
mod zoo;
