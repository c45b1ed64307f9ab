//! How results leave the command: tables for people, one JSON document for programs.

pub mod browser;
pub mod html;
pub mod json;
pub mod pages;
pub mod table;
pub mod trace;
