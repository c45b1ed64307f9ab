//! Tuned choices of variants and constants: kept in one file, found again for an adapter and a shape.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lathe_kernels::{Capabilities, Kernel, Shape};
use serde::{Deserialize, Serialize};

use crate::data::{AdapterSummary, Ratio};
use crate::error::{Error, Result};
use crate::plan::Plan;

/// One stored choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Adapter name.
    pub adapter: String,
    /// Driver and its version.
    pub driver: String,
    /// Kernel.
    pub kernel: String,
    /// Compiled-in parameters; see [`Kernel::key`].
    pub shape: String,
    /// Variant.
    pub variant: String,
    /// Overrides that differ from the variant's own choice.
    pub constants: BTreeMap<String, f64>,
    /// Hash of the source and all constants it was tuned with.
    pub source: String,
    /// Time over the incumbent's.
    pub ratio: Ratio,
    /// What it beat.
    pub incumbent: String,
    /// When, UTC.
    pub date: String,
}

/// Stored choices of all machines in one JSON file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Store {
    /// Version of the file.
    pub schema_version: u32,
    /// Choices.
    pub entries: Vec<Entry>,
}

impl Store {
    /// `LATHE_TUNED`, or `tuned.json` in the user's cache folder.
    pub fn default_path() -> PathBuf {
        if let Some(path) = std::env::var_os("LATHE_TUNED") {
            return path.into();
        }
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .or_else(|| std::env::var_os("LOCALAPPDATA").map(PathBuf::from));
        cache.unwrap_or_default().join("lathe").join("tuned.json")
    }

    /// Reads a store; a missing file is an empty one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { schema_version: 1, entries: Vec::new() });
            }
            Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
        };
        let bad = |reason: String| Error::Usage(format!("{}: {reason}", path.display()));
        let store: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        match store.schema_version {
            1 => Ok(store),
            other => Err(bad(format!("schema_version {other}; this version reads 1"))),
        }
    }

    /// Writes the store beside its old version and puts it in its place.
    pub fn write(&self, path: &Path) -> Result<()> {
        let error = |source| Error::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(error)?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|e| error(e.into()))?;
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&beside, text).map_err(error)?;
        std::fs::rename(&beside, path).map_err(error)
    }

    /// Replaces the choice for the same adapter, driver, kernel and shape.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|e| {
            (&e.adapter, &e.driver, &e.kernel, &e.shape)
                != (&entry.adapter, &entry.driver, &entry.kernel, &entry.shape)
        });
        self.entries.push(entry);
    }

    /// The choices of one adapter and driver.
    pub fn of(&self, adapter: &AdapterSummary) -> Tuned {
        let mine = |e: &&Entry| e.adapter == adapter.name && e.driver == adapter.driver;
        Tuned { entries: self.entries.iter().filter(mine).cloned().collect() }
    }
}

/// The stored choices of one adapter.
#[derive(Clone, Debug, Default)]
pub struct Tuned {
    entries: Vec<Entry>,
}

impl Tuned {
    /// The plan stored for a shape and why it is taken. An entry whose source has changed since
    /// is stale and not looked at.
    pub fn find(
        &self,
        kernel: &'static Kernel,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Option<(Plan, String)> {
        let key = kernel.key(shape);
        let entry = self.entries.iter().find(|e| e.kernel == kernel.name && e.shape == key)?;
        let variant = kernel.variant(&entry.variant)?;
        let plan = Plan::tuned(kernel, variant, shape, caps, &entry.constants).ok()?;
        if plan.fingerprint() != entry.source {
            tracing::warn!(kernel = kernel.name, shape = key, "tuned entry is stale, ignored");
            return None;
        }
        let why = format!("tuned: {:.3} of {}'s time", entry.ratio.median, entry.incumbent);
        Some((plan, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kernel: &'static Kernel, shape: &Shape) -> Entry {
        let variant = kernel.variant("workgroup").expect("a variant of gemv");
        let constants = BTreeMap::from([("LANES".to_owned(), 16.0)]);
        let caps = Capabilities::minimal();
        let plan = Plan::tuned(kernel, variant, shape, &caps, &constants).expect("a plan");
        Entry {
            adapter: "A".into(),
            driver: "D".into(),
            kernel: kernel.name.into(),
            shape: kernel.key(shape),
            variant: "workgroup".into(),
            constants,
            source: plan.fingerprint(),
            ratio: Ratio { median: 0.9, low: 0.89, high: 0.91 },
            incumbent: "naive".into(),
            date: String::new(),
        }
    }

    #[test]
    fn a_tuned_choice_comes_after_a_hint_and_before_preferences_and_stale_ones_are_ignored() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let shape = kernel.default_problem().shape;
        let caps = Capabilities::minimal();
        let mut entry = entry(kernel, &shape);
        let chosen = |tuned: &Tuned, hints: &crate::plan::select::Hints| {
            let s = crate::plan::select::select(kernel, &shape, &caps, hints, Some(tuned));
            let s = s.expect("a selection");
            (s.plan.variant.clone(), s.plan.constants.get("LANES").copied(), s.why)
        };
        let none = crate::plan::select::Hints::new();
        let tuned = Tuned { entries: vec![entry.clone()] };
        let (variant, lanes, why) = chosen(&tuned, &none);
        assert_eq!((variant.as_str(), lanes), ("workgroup", Some(16.0)));
        assert!(why.contains("tuned"));
        let hint = crate::plan::select::Hints::from([("gemv".to_owned(), "naive".into())]);
        assert_eq!(chosen(&tuned, &hint).0, "naive");
        entry.source = "another".into();
        let (_, lanes, why) = chosen(&Tuned { entries: vec![entry] }, &none);
        assert_ne!(lanes, Some(16.0));
        assert!(!why.contains("tuned"));
    }

    #[test]
    fn the_store_keeps_one_choice_an_adapter_and_shape() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let one = entry(kernel, &kernel.default_problem().shape);
        let mut store = Store { schema_version: 1, entries: vec![] };
        store.put(one.clone());
        store.put(Entry { variant: "naive".into(), ..one.clone() });
        store.put(Entry { driver: "E".into(), ..one });
        assert_eq!(store.entries.len(), 2);
        assert_eq!(store.entries[0].variant, "naive");
    }
}
