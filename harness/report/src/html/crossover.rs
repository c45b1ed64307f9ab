//! Where attention, which grows with the context, overtakes the largest matrix product, which
//! does not.

use lathe_kernels::{Elem, State};
use lathe_record::record::{Profile, ProfiledOp};

use super::markup::{percent, plural, ratio};
use super::profile::by_op;
use super::steps::{Series, StepChart};
use super::svg::{Colours, figure};

/// Fewest positions between the first step and the last of which a crossover says anything: over
/// fewer, attention hardly grows.
const FEWEST_POSITIONS: usize = 500;

/// Attention against the largest matrix product, milliseconds a step, and where they cross.
pub(super) struct Crossover {
    /// Name of the first attention operation.
    pub(super) attention: String,
    /// Name of the matrix product that takes most time over the run.
    pub(super) matmul: String,
    /// All attention operations of each step.
    pub(super) attention_ms: Vec<f64>,
    /// That matrix product in each step, summed over layers.
    pub(super) matmul_ms: Vec<f64>,
    /// The first step at which attention takes as long or longer.
    pub(super) first: Option<usize>,
}

impl Crossover {
    /// `None` for a profile without attention or without a matrix product, and for one of too few
    /// positions.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let (first, last) = (profile.steps.first()?, profile.steps.last()?);
        if last.position.saturating_sub(first.position) + 1 < FEWEST_POSITIONS {
            return None;
        }
        let of_kind = |wanted| -> Vec<&String> {
            let ops = profile.ops.iter().filter(|op| kind(op) == Some(wanted));
            ops.map(|op| &op.op).collect()
        };
        let (attention, products) = (of_kind(Kind::Attention), of_kind(Kind::Product));
        // Most time first.
        let sums = by_op(profile);
        let (matmul, matmul_ms) = sums.iter().find(|(op, _)| products.contains(&op))?.clone();
        let mut attention_ms = vec![0.0; profile.steps.len()];
        for (_, values) in sums.iter().filter(|(op, _)| attention.contains(&op)) {
            attention_ms.iter_mut().zip(values).for_each(|(sum, ms)| *sum += ms);
        }
        let attention = (*attention.first()?).clone();
        let first = attention_ms.iter().zip(&matmul_ms).position(|(a, m)| a >= m && *a > 0.0);
        Some(Self { attention, matmul, attention_ms, matmul_ms, first })
    }

    /// Share of the steps from the first crossing on in which attention stays the larger.
    fn holds(&self, first: usize) -> f64 {
        let after = self.attention_ms.iter().zip(&self.matmul_ms).skip(first);
        let held = after.clone().filter(|(a, m)| a >= m).count();
        ratio(held as f64, after.count() as f64).unwrap_or(0.0)
    }

    /// The finding in words.
    fn sentence(&self, positions: &[usize]) -> String {
        let matmul = &self.matmul;
        let Some(first) = self.first else {
            let end = |v: &[f64]| v.last().copied().unwrap_or(0.0);
            let part = ratio(end(&self.attention_ms), end(&self.matmul_ms));
            return format!(
                "No crossover: attention stays below {matmul}, the largest matrix product, in \
                 all {}; in the last it takes {} of its time.",
                plural(positions.len(), "step"),
                percent(part.unwrap_or(f64::NAN))
            );
        };
        let at = positions.get(first).map_or_else(String::new, |p| format!(" (position {p})"));
        let holds = self.holds(first);
        let stays = if first + 1 == positions.len() {
            "it is the last step of the run".to_owned()
        } else if holds >= 1.0 {
            "from there on it stays so to the end".to_owned()
        } else {
            format!("of the steps from there on this holds for {}", percent(holds))
        };
        format!(
            "Attention first takes as long as {matmul}, the largest matrix product, at step \
             {first}{at}; {stays}."
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Reads a KV cache, and does more the more is in it.
    Attention,
    /// Takes every element of a weight matrix at least once.
    Product,
}

/// What an operation is by its kernel's declaration: a fused one is a product too, whatever it is
/// called. `None` where it is neither, and for kernels and shapes that nobody declares any more.
fn kind(op: &ProfiledOp) -> Option<Kind> {
    let kernel = lathe_kernels::kernel(&op.kernel)?;
    let problem = kernel.parse_complete(&op.shape).ok()?;
    let (mut kv, mut elements) = (false, 0.0);
    for binding in kernel.bindings {
        match binding.elem(&problem) {
            Elem::Weights(_) => elements += binding.len(&problem) as f64,
            Elem::Kv(_) => kv = true,
            _ => {}
        }
    }
    let flops = |n_kv| {
        let mut problem = problem.clone();
        problem.state = State { n_kv, ..problem.state };
        kernel.cost(&problem).flops
    };
    if kv && flops(2) > flops(1) {
        return Some(Kind::Attention);
    }
    (elements > 0.0 && flops(1) >= elements).then_some(Kind::Product)
}

/// The figure, or nothing where the profile says nothing about a crossover.
pub(super) fn figure_of(profile: &Profile, positions: &[usize], slots: &Colours) -> String {
    let Some(crossover) = Crossover::of(profile) else { return String::new() };
    let sentence = crossover.sentence(positions);
    let mark = crossover.first.map(|step| (step, format!("step {step}")));
    // The colours these operations have in the stack, unless that is grey for both.
    let slot_of = |op: &str, other| slots.get(op).copied().unwrap_or(other);
    let slots = match (slot_of(&crossover.attention, 4), slot_of(&crossover.matmul, 0)) {
        (a, b) if a == b => (4, 0),
        different => different,
    };
    let line = |name: &str, slot, values: Vec<f64>| {
        let ends = [values.first(), values.last()].map(|v| v.copied().unwrap_or(0.0));
        let legend = format!("{:.3} → {:.3}", ends[0], ends[1]);
        Series { name: name.to_owned(), slot, values, legend: (legend, String::new()) }
    };
    let (chart, note) = StepChart {
        description: sentence.clone(),
        unit: "ms a step",
        step: "profiled step",
        positions,
        bands: Vec::new(),
        lines: vec![
            line("attention", slots.0, crossover.attention_ms),
            line(&crossover.matmul, slots.1, crossover.matmul_ms),
        ],
        legend: "first → last step",
        mark,
        from_zero: true,
        height: 210.0,
    }
    .draw();
    let heard = format!("<p class=\"finding\">{}</p>\n", super::markup::text(&sentence));
    let caption = format!("Both summed over layers, serialised. {note}");
    figure("Attention crossover", &(heard + &chart), caption.trim())
}
