//! How results leave the command: tables for people, one JSON document for programs.

pub mod browser;
pub mod compare;
pub mod html;
pub mod json;
pub mod pages;
pub mod record;
pub mod table;
pub mod trace;
