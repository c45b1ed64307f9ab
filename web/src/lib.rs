//! Work of the bench as data for any WebGPU engine: checks of kernels with their inputs, expected
//! outcomes and bounds, and decode steps of models with their weights.
//!
//! ```text
//! targets, models ─ for each kind of device → plan.json (texts, grids, bindings) + plan.bin (bytes)
//!   → web/*.js in a browser or under Node → a record that `lathe report` reads
//! ```
//!
//! A plan is made for kinds of devices, none of which need be here. The page takes the first kind
//! whose needs its adapter meets.

mod check;
mod decode;
mod kinds;
mod page;
mod pool;

use std::path::{Path, PathBuf};

use lathe_device::error::{Error, Result};
use lathe_device::plan::target::Target;
use serde::Serialize;

pub use decode::ModelRequest;
pub use kinds::{Kind, kinds};

use pool::{Data, Texts};

/// Version of the plans that the JavaScript here reads.
pub const PLAN_VERSION: u32 = 1;

/// Contents of an export.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Kernels, variants or files whose cases are exported.
    pub targets: &'a [Target],
    /// Shapes of a `--shape`, which replace fixed cases and random ones.
    pub shape: Option<&'a str>,
    /// Random shapes per kernel in addition to its fixed cases.
    pub random: usize,
    /// Seed of random shapes and of all inputs.
    pub seed: u64,
    /// Most bytes of a case; larger ones are left out and listed as unavailable.
    pub case_bytes: Option<u64>,
    /// Number of cases of each variant that are exported, the smallest ones; none for all. Others are
    /// listed as unavailable.
    pub smallest: Option<usize>,
    /// Benchmarks of the targets whose tensors have at most this many bytes together; none for no
    /// benchmarks.
    pub bench_bytes: Option<u64>,
    /// Models to decode with.
    pub models: &'a [ModelRequest],
    /// Kinds of devices, the best first.
    pub kinds: &'a [Kind],
    /// One HTML file with everything in it.
    pub single: bool,
}

/// Files and contents of an export.
#[derive(Clone, Debug, Serialize)]
pub struct Exported {
    /// The page.
    pub page: PathBuf,
    /// Bytes of tensors.
    pub data_bytes: u64,
    /// Texts of shaders.
    pub texts: usize,
    /// Contents for each kind of device.
    pub kinds: Vec<ExportedKind>,
}

/// Contents of an export for a kind of device.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedKind {
    /// Name of the kind.
    pub name: &'static str,
    /// Cases of variants.
    pub cases: usize,
    /// Cases that devices of the kind cannot run.
    pub unavailable: usize,
    /// Benchmarks of variants.
    pub benches: usize,
    /// Models.
    pub models: usize,
}

/// A plan, as the JavaScript reads it.
#[derive(Debug, Serialize)]
struct Plan {
    plan_version: u32,
    environment: Build,
    seed: u64,
    texts: Vec<pool::Text>,
    kinds: Vec<KindPlan>,
}

/// Build that made a plan.
#[derive(Debug, Serialize)]
struct Build {
    lathe: &'static str,
    commit: Option<String>,
    dirty: Option<bool>,
    wgsl: Option<String>,
    naga: Option<String>,
}

/// Work for a kind of device.
#[derive(Debug, Serialize)]
struct KindPlan {
    name: &'static str,
    what: &'static str,
    needs: kinds::Needs,
    check: Vec<check::CasePlan>,
    unavailable: Vec<check::Unavailable>,
    bench: Vec<check::CasePlan>,
    models: Vec<decode::ModelPlan>,
}

/// Writes a plan with the page that runs it into a folder, which is made. `progress` receives the
/// cases done and their number.
///
/// # Errors
/// A file of an export is there already, one cannot be read or written, a model does not fit a
/// kind, or `single` would be too large for a page.
pub fn export(
    request: &Request<'_>,
    folder: &Path,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Exported> {
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    page::vacant(folder, request.single)?;
    let (mut texts, mut data) = (Texts::default(), Data::create(folder)?);
    let plans = request.kinds.iter().map(|kind| KindPlan {
        name: kind.name,
        what: kind.what,
        needs: kind.needs(),
        check: Vec::new(),
        unavailable: Vec::new(),
        bench: Vec::new(),
        models: Vec::new(),
    });
    let mut kinds: Vec<KindPlan> = plans.collect();
    check::export(request, &mut kinds, &mut texts, &mut data, progress)?;
    for model in request.models {
        decode::export(model, request.kinds, &mut kinds, &mut texts, &mut data)?;
    }
    let summary = kinds.iter().map(|kind| ExportedKind {
        name: kind.name,
        cases: kind.check.len(),
        unavailable: kind.unavailable.len(),
        benches: kind.bench.len(),
        models: kind.models.len(),
    });
    let (summary, texts) = (summary.collect(), texts.all());
    let (count, data_bytes) = (texts.len(), data.bytes());
    let made = lathe_device::measure::build();
    let environment = Build {
        lathe: env!("CARGO_PKG_VERSION"),
        commit: made.commit,
        dirty: made.dirty,
        wgsl: made.wgsl,
        naga: made.naga,
    };
    let plan = Plan { plan_version: PLAN_VERSION, environment, seed: request.seed, texts, kinds };
    let json = serde_json::to_string(&plan).expect("a plan has no keys but texts");
    let page = page::write(folder, &json, data, request.single)?;
    Ok(Exported { page, data_bytes, texts: count, kinds: summary })
}

/// The error of a file or folder.
fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    |source| Error::Io { path: path.to_owned(), source }
}
