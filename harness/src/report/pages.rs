//! Markdown that restates declarations and records: `docs/kernels/<op>.md` and
//! `benches/records/README.md`. The hand-written part of each is a `page.md`, which these functions
//! complete. Texts in, texts out: `tests/pages.rs` reads and writes the files.

mod declared;
mod markdown;
mod measured;

pub use declared::Page;
pub use measured::{Measurements, Saved, index};

/// The command that rewrites the pages.
pub const REWRITE: &str = "LATHE_BLESS=1 cargo test -p lathe-harness --test pages";

/// Where two texts differ first, and what to do about it; `None` when they are equal. `path` names
/// the committed file.
pub fn stale(path: &str, committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let mut lines = committed.lines().zip(generated.lines()).enumerate();
    let (line, old, new) = lines.find(|(_, (old, new))| old != new).map_or_else(
        || {
            let (old, new) = (committed.lines().count(), generated.lines().count());
            let at = old.min(new);
            let end = |text: &str| text.lines().nth(at).unwrap_or("(end of file)").to_owned();
            (at + 1, end(committed), end(generated))
        },
        |(at, (old, new))| (at + 1, old.to_owned(), new.to_owned()),
    );
    Some(format!(
        "{path} is stale, first in line {line}\n  committed: {old}\n  generated: {new}\n  \
         rewrite:   {REWRITE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::stale;

    #[test]
    fn a_stale_page_is_named_with_its_first_differing_line() {
        assert_eq!(stale("a.md", "same\n", "same\n"), None);
        let message = stale("docs/a.md", "# a\none\ntwo\n", "# a\n1\n2\n").unwrap();
        assert!(message.starts_with("docs/a.md is stale, first in line 2\n"), "{message}");
        assert!(message.contains("committed: one\n  generated: 1\n"), "{message}");
        assert!(message.contains("LATHE_BLESS=1"), "{message}");
        let shorter = stale("a.md", "# a\n", "# a\nmore\n").unwrap();
        assert!(shorter.contains("line 2\n  committed: (end of file)\n  generated: more"));
    }
}
