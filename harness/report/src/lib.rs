//! Output of results: pages, traces and rows of other tools.

pub mod generation;
pub mod html;
pub mod trace;
