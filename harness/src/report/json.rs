//! One JSON document with `schema_version`.

use serde::Serialize;

use crate::data::record::SCHEMA_VERSION;

#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema_version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Prints `body` as the only document on stdout.
pub fn print(body: &impl Serialize) {
    let document = Document { schema_version: SCHEMA_VERSION, body };
    match serde_json::to_string_pretty(&document) {
        Ok(text) => println!("{text}"),
        // Our own types serialise; a failure here is a bug worth seeing.
        Err(e) => eprintln!("lathe: cannot write JSON: {e}"),
    }
}
