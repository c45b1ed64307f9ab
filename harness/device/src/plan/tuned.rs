//! Tuned choices of variants and constants, kept in one file and looked up by adapter and shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lathe_kernels::{Capabilities, Kernel, Shape};
use lathe_record::files;
use lathe_record::merge::{Merged, Prefer};
use lathe_record::{AdapterSummary, Ratio};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Plan;

/// One stored choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Adapter name.
    pub adapter: String,
    /// Driver and its version.
    pub driver: String,
    /// Version of wgpu, whose naga makes the code.
    pub wgpu: String,
    /// wgpu's run-time checks in built-in kernels: `on` or `off`.
    pub runtime_checks: String,
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
    /// Ratio of its time to the incumbent's.
    pub ratio: Ratio,
    /// The choice that it beat.
    pub incumbent: String,
    /// Date and time, UTC.
    pub date: String,
}

/// Adapter, wgpu version and checks that a choice was measured on or is valid for.
#[derive(Clone, Copy, Debug)]
pub struct Platform<'a> {
    /// The adapter and its driver.
    pub adapter: &'a AdapterSummary,
    /// Version of wgpu.
    pub wgpu: &'a str,
    /// wgpu's run-time checks.
    pub runtime_checks: &'a str,
}

impl Entry {
    /// Returns true if it was measured under these conditions.
    fn holds_in(&self, platform: &Platform<'_>) -> bool {
        self.is_of(platform.adapter)
            && self.wgpu == platform.wgpu
            && self.runtime_checks == platform.runtime_checks
    }

    fn is_of(&self, adapter: &AdapterSummary) -> bool {
        self.adapter == adapter.name && self.driver == adapter.driver
    }

    /// Adapter, driver, version of wgpu, mode of its checks, kernel and shape: one choice for each.
    fn key(&self) -> [&str; 6] {
        let Self { adapter, driver, wgpu, runtime_checks, kernel, shape, .. } = self;
        [adapter, driver, wgpu, runtime_checks, kernel, shape]
    }

    /// The variant, constants and source of the choice.
    fn choice(&self) -> String {
        let set: Vec<_> = self.constants.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} {} (source {})", self.variant, set.join(","), self.source)
    }

    /// The choice's plan for a shape, or the reason why it is stale.
    fn plan(
        &self,
        kernel: &'static Kernel,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Plan, String> {
        let no_variant = || format!("{} has no variant {}", kernel.name, self.variant);
        let variant = kernel.variant(&self.variant).ok_or_else(no_variant)?;
        let plan = Plan::tuned(kernel, variant, shape, caps, &self.constants);
        let plan = plan.map_err(|e| format!("{}: {e}", self.variant))?;
        match plan.fingerprint() == self.source {
            true => Ok(Plan { is_tuned: true, ..plan }),
            false => Err(format!("{} has changed since", self.variant)),
        }
    }
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
        let text = match files::read_text(path, files::DATA) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { schema_version: 1, entries: Vec::new() });
            }
            Err(source) => return Err(Error::io(path)(source)),
        };
        Self::parse(&text, path)
    }

    /// Parses a text; errors name `path` as its file.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let bad = |reason: String| Error::Usage(format!("{}: {reason}", path.display()));
        let store: Self = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        match store.schema_version {
            1 => Ok(store),
            other => Err(bad(format!("schema_version {other}; this version reads 1"))),
        }
    }

    /// Writes the store to a new file and replaces the old one with it.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(path))?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(path)(e.into()))?;
        files::replace(path, text.as_bytes()).map_err(Error::io(path))
    }

    /// Replaces the choice for the same adapter, driver, kernel and shape.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|e| {
            (&e.adapter, &e.driver, &e.kernel) != (&entry.adapter, &entry.driver, &entry.kernel)
                || e.shape != entry.shape
        });
        self.entries.push(entry);
    }

    /// Returns true if there is a choice for the same conditions, kernel and shape.
    pub fn has(&self, entry: &Entry) -> bool {
        self.entries.iter().any(|known| known.key() == entry.key())
    }

    /// The choices of several files as one store, in the order of the files. A later measurement of
    /// the same choice replaces an earlier one; two different choices for the same conditions,
    /// kernel and shape contradict each other.
    pub fn merge(inputs: Vec<(PathBuf, Self)>, prefer: Option<Prefer>) -> Merged<Self> {
        let empty = Self { schema_version: 1, entries: Vec::new() };
        let mut result = Merged { merged: empty, notes: Vec::new(), contradictions: Vec::new() };
        let mut from: Vec<PathBuf> = Vec::new();
        for (path, store) in inputs {
            for entry in store.entries {
                let known = &mut result.merged.entries;
                let Some(at) = known.iter().position(|known| known.key() == entry.key()) else {
                    known.push(entry);
                    from.push(path.clone());
                    continue;
                };
                let own = &mut known[at];
                if *own == entry {
                    continue;
                }
                let takes_later = match own.choice() == entry.choice() {
                    true => Some(entry.date > own.date),
                    false => prefer.and_then(|p| p.takes_later(&own.date, &entry.date)),
                };
                let (first, second) = (from[at].display(), path.display());
                let what = format!(
                    "{} {} on {}: {first} chooses {} of {}, {second} {} of {}",
                    entry.kernel,
                    entry.shape,
                    entry.adapter,
                    own.choice(),
                    own.date,
                    entry.choice(),
                    entry.date
                );
                match takes_later {
                    None => result.contradictions.push(what),
                    Some(false) => result.notes.push(format!("{what}: that of {first} counts")),
                    Some(true) => {
                        result.notes.push(format!("{what}: that of {second} counts"));
                        (*own, from[at]) = (entry, path.clone());
                    }
                }
            }
        }
        result
    }

    /// The choices of one adapter, driver, version of wgpu and mode of its checks.
    pub fn of(&self, platform: &Platform<'_>) -> Tuned {
        let mine = self.entries.iter().filter(|e| e.is_of(platform.adapter));
        let (here, elsewhere): (Vec<_>, Vec<_>) = mine.cloned().partition(|e| e.holds_in(platform));
        if !elsewhere.is_empty() {
            let count = elsewhere.len();
            tracing::info!(count, "tuned entries of another wgpu or with other checks, ignored");
        }
        Tuned { entries: here, ..Tuned::default() }
    }
}

/// The stored choices of one adapter.
#[derive(Clone, Debug, Default)]
pub struct Tuned {
    entries: Vec<Entry>,
    /// Entries already reported as stale: every layer asks for the same ones.
    said: Arc<Mutex<BTreeSet<usize>>>,
}

impl Tuned {
    /// The plan stored for a shape, with the reason for it. An entry is stale if its source has
    /// changed since or if it cannot be planned: it is reported once and ignored.
    pub fn find(
        &self,
        kernel: &'static Kernel,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Option<(Plan, String)> {
        let key = kernel.key(shape);
        let is_its = |e: &Entry| e.kernel == kernel.name && e.shape == key;
        let at = self.entries.iter().position(is_its)?;
        let entry = &self.entries[at];
        match entry.plan(kernel, shape, caps) {
            Ok(plan) => {
                let why = format!("tuned: {:.3} of {}'s time", entry.ratio.median, entry.incumbent);
                Some((plan, why))
            }
            Err(why) => {
                if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(at) {
                    let kernel = kernel.name;
                    tracing::warn!(kernel, shape = key, why, "tuned entry is stale, ignored");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::select::{Hints, parse_hints, select};

    fn gemv() -> (&'static Kernel, Shape) {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        (kernel, kernel.default_problem().shape)
    }

    fn tuned(entry: Entry) -> Tuned {
        Tuned { entries: vec![entry], ..Tuned::default() }
    }

    /// A choice for gemv.
    fn entry() -> Entry {
        let (kernel, shape) = gemv();
        let variant = kernel.variant("workgroup").expect("a variant of gemv");
        let constants = BTreeMap::from([("LANES".to_owned(), 16.0)]);
        let caps = Capabilities::minimal();
        let plan = Plan::tuned(kernel, variant, &shape, &caps, &constants).expect("a plan");
        Entry {
            adapter: "A".into(),
            driver: "D".into(),
            wgpu: "30.0.1".into(),
            runtime_checks: "off".into(),
            kernel: kernel.name.into(),
            shape: kernel.key(&shape),
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
        let ((kernel, shape), caps, mut entry) = (gemv(), Capabilities::minimal(), entry());
        let chosen = |tuned: &Tuned, hints: &Hints| {
            let s = select(kernel, &shape, &caps, hints, Some(tuned));
            let s = s.expect("a selection");
            (s.plan.variant.clone(), s.plan.code.constants.get("LANES").copied(), s.why)
        };
        let none = Hints::new();
        let known = tuned(entry.clone());
        let (variant, lanes, why) = chosen(&known, &none);
        assert_eq!((variant.as_str(), lanes), ("workgroup", Some(16.0)));
        assert!(why.contains("tuned"));
        let hint = parse_hints(&["gemv=naive".into()]).expect("a hint");
        assert_eq!(chosen(&known, &hint).0, "naive");
        entry.source = "another".into();
        let (_, lanes, why) = chosen(&tuned(entry), &none);
        assert_ne!(lanes, Some(16.0));
        assert!(!why.contains("tuned"));
    }

    #[test]
    fn a_choice_that_cannot_be_planned_is_stale() {
        let ((kernel, shape), sound) = (gemv(), entry());
        for value in [0.0, -0.0, -1.0, 0.5, 1e300, f64::NAN, f64::INFINITY, 8_589_934_592.0] {
            for name in ["LANES", "WG", "ROWS", "NO_SUCH"] {
                let constants = BTreeMap::from([(name.to_owned(), value)]);
                let tuned = tuned(Entry { constants, ..sound.clone() });
                let caps = Capabilities::minimal();
                assert!(tuned.find(kernel, &shape, &caps).is_none(), "{name} = {value}");
            }
        }
        let other = Entry { variant: "no such".into(), ..sound };
        let why = other.plan(kernel, &shape, &Capabilities::minimal()).map(|_| "a plan");
        assert_eq!(why, Err("gemv has no variant no such".into()));
    }

    #[test]
    fn a_choice_holds_where_it_was_measured() {
        let one = entry();
        let adapter =
            AdapterSummary { name: "A".into(), driver: "D".into(), ..AdapterSummary::default() };
        let platform = Platform { adapter: &adapter, wgpu: "30.0.1", runtime_checks: "off" };
        let other = AdapterSummary { driver: "E".into(), ..adapter.clone() };
        assert!(one.holds_in(&platform));
        assert!(!one.holds_in(&Platform { adapter: &other, ..platform }));
        assert!(!one.holds_in(&Platform { wgpu: "31.0.0", ..platform }));
        assert!(!one.holds_in(&Platform { runtime_checks: "on", ..platform }));
    }

    #[test]
    fn the_store_keeps_one_choice_an_adapter_and_shape() {
        let one = entry();
        let mut store = Store { schema_version: 1, entries: vec![] };
        store.put(one.clone());
        store.put(Entry { variant: "naive".into(), ..one.clone() });
        store.put(Entry { driver: "E".into(), ..one });
        assert_eq!(store.entries.len(), 2);
        assert_eq!(store.entries[0].variant, "naive");
    }

    #[test]
    fn merged_stores_have_every_choice_once_and_contradictions_are_said() {
        let one = Entry { date: "2026-11-20T00:00:00Z".into(), ..entry() };
        let later = Entry { date: "2026-11-21T00:00:00Z".into(), ..one.clone() };
        let elsewhere = Entry { adapter: "B".into(), ..one.clone() };
        let checked = Entry { runtime_checks: "on".into(), ..one.clone() };
        let other = Entry { variant: "naive".into(), ..later.clone() };
        let merge = |files: &[&[&Entry]], prefer| {
            let files = files.iter().enumerate().map(|(i, entries)| {
                let entries = entries.iter().map(|e| (*e).clone()).collect();
                (PathBuf::from(format!("{i}.json")), Store { schema_version: 1, entries })
            });
            Store::merge(files.collect(), prefer)
        };
        let all = merge(&[&[&one, &elsewhere], &[&checked], &[&one]], None);
        assert_eq!(all.merged.entries, [one.clone(), elsewhere.clone(), checked.clone()]);
        assert_eq!((all.notes.len(), all.contradictions.len()), (0, 0));
        // A choice that was measured again.
        for files in [[&one, &later], [&later, &one]] {
            let again = merge(&[&files[..1], &files[1..]], None);
            assert_eq!(again.merged.entries, std::slice::from_ref(&later));
            assert!(again.notes[0].contains("0.json chooses"), "{:?}", again.notes);
        }
        let torn = merge(&[&[&one], &[&other]], None);
        let said = &torn.contradictions[0];
        assert!(said.contains("0.json chooses workgroup LANES=16"), "{said}");
        assert!(said.contains("1.json naive"), "{said}");
        let newest = merge(&[&[&other], &[&one]], Some(Prefer::Newest));
        assert_eq!((newest.merged.entries, newest.contradictions.len()), (vec![other.clone()], 0));
        let first = merge(&[&[&one], &[&other]], Some(Prefer::First));
        assert_eq!(first.merged.entries, std::slice::from_ref(&one));
        // Of one date neither is newer.
        let twin = Entry { variant: "naive".into(), ..one.clone() };
        let torn = merge(&[&[&one], &[&twin]], Some(Prefer::Newest));
        assert_eq!(torn.contradictions.len(), 1);
    }
}
