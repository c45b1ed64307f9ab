//! Output of results: pages, traces and tables of other tools.

pub mod generation;
pub mod html;
mod markup;
mod table;
pub mod trace;

pub use table::Table;
