//! How results leave the command: tables for people, one JSON document for programs.

pub mod browser;
pub mod generation;
pub mod html;
pub mod json;
pub mod llama_bench;
pub mod pages;
#[cfg(feature = "cli")]
pub mod table;
pub mod trace;
