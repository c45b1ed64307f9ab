//! The tests in one program. Each program compiles and links the whole library anew, and programs
//! run one after the other: apart, the last long test of each would leave a core without work.
//!
//! Programs of their own are those that register operations, which every other test would find, and
//! those that take no device and are run by name after a change.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod cheats;
mod checker;
mod decode;
mod finite;
mod formats;
mod generation;
mod kernels;
mod mappings;
mod measure;
mod memory;
mod mistakes;
mod perplexity;
mod persistent;
mod rusty;
mod sampling;
mod sanitize;
mod scripts;
mod smollm2;
mod tokenizers;
mod validate;
mod verify;
mod web;
