//! How results leave the command: tables for people, one JSON document for programs.

pub mod json;
pub mod table;
