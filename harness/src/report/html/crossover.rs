//! Where attention, which grows with the context, overtakes the largest matrix product, which
//! does not.

use super::markup::{paragraph, percent, plural, ratio, sound};
use super::steps::{Series, StepChart};
use super::svg::{Colours, figure};
use crate::data::record::Profile;

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
    /// `None` for a profile without attention or without a matrix product.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let attention: Vec<usize> = indices(profile, |op| op.contains("attention"));
        let products = indices(profile, |op| op.contains("gemv") || op.contains("matmul"));
        let mut names: Vec<&str> = products.iter().map(|i| &*profile.ops[*i].op).collect();
        names.sort_unstable();
        names.dedup();
        let series = |ops: &[usize]| -> Vec<f64> {
            let time = |us: &[f64], i: usize| us.get(i).copied().and_then(sound).unwrap_or(0.0);
            let step = |us: &[f64]| ops.iter().map(|i| time(us, *i)).sum::<f64>() / 1000.0;
            profile.steps.iter().map(|s| step(&s.us)).collect()
        };
        let (matmul, matmul_ms) = names
            .into_iter()
            .map(|name| {
                let of_name = |i: &usize| profile.ops[*i].op == name;
                let ops: Vec<usize> = products.iter().copied().filter(of_name).collect();
                (name.to_owned(), series(&ops))
            })
            .max_by(|a, b| a.1.iter().sum::<f64>().total_cmp(&b.1.iter().sum()))?;
        let first = profile.ops.get(*attention.first()?)?.op.clone();
        if profile.steps.is_empty() {
            return None;
        }
        let attention_ms = series(&attention);
        let crossing = attention_ms.iter().zip(&matmul_ms).position(|(a, m)| a >= m && *a > 0.0);
        Some(Self { attention: first, matmul, attention_ms, matmul_ms, first: crossing })
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

fn indices(profile: &Profile, is: impl Fn(&str) -> bool) -> Vec<usize> {
    let by_kernel = profile.ops.iter().enumerate().filter(|(_, op)| is(&op.kernel));
    by_kernel.map(|(i, _)| i).collect()
}

/// The figure, or a sentence where there is nothing to draw.
pub(super) fn figure_of(profile: &Profile, positions: &[usize], slots: &Colours) -> String {
    let heading = "Attention crossover";
    let Some(crossover) = Crossover::of(profile) else {
        let line = "The profile does not hold both an attention kernel and a matrix product.";
        return figure(heading, &paragraph(line), "");
    };
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
    figure(heading, &(heard + &chart), caption.trim())
}
