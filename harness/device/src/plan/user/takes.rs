//! Shapes that a file supports: the sweep draws among them, and others are unavailable.

use std::collections::BTreeMap;

use lathe_kernels::{Capabilities, Kernel, Param, ParamKind, Problem, Shape};

use super::Faults;
use super::expression::{Names, Wrong, evaluate};
use super::mapping::Numbers;
use crate::plan::Subject;

/// The key of conditions among those of parameters.
const WHEN: &str = "when";

/// Shapes that a file supports.
#[derive(Debug, Default)]
pub(super) struct Takes {
    rules: Vec<Rule>,
    /// Expressions that must all be true.
    when: Vec<String>,
}

/// Values supported of one parameter.
#[derive(Debug)]
struct Rule {
    param: &'static Param,
    allowed: Allowed,
    /// Text of the mapping.
    text: String,
}

#[derive(Debug)]
enum Allowed {
    Values(Vec<f64>),
    MultipleOf(u32),
}

impl Takes {
    /// Reads the section of the mapping.
    pub(super) fn read(
        section: &BTreeMap<String, Numbers>,
        kernel: &'static Kernel,
        faults: &mut Faults,
    ) -> Self {
        let mut takes = Self::default();
        for (name, taken) in section {
            if name == WHEN {
                takes.when = taken.texts();
                continue;
            }
            match Rule::read(name, taken, kernel) {
                Ok(rule) => takes.rules.push(rule),
                Err(why) => faults.add(format!("[takes] {why}")),
            }
        }
        takes
    }

    /// The reason why a shape is not supported, if it is not.
    pub(super) fn refuses(&self, shape: &Shape, names: &Names) -> Result<Option<String>, String> {
        let refusal = |rule: &Rule| {
            let value = shape.get(rule.param.name).unwrap_or_default();
            let (shown, text) = (rule.param.show(value), &rule.text);
            (!rule.allowed.has(value)).then(|| format!("{shown}: it takes {text}"))
        };
        let refusals: Vec<_> = self.rules.iter().filter_map(refusal).collect();
        if !refusals.is_empty() {
            return Ok(Some(refusals.join("; ")));
        }
        for condition in &self.when {
            match evaluate(condition, names) {
                Ok(0.0) | Err(Wrong::Value(_)) => {
                    return Ok(Some(format!("it takes shapes where {condition}")));
                }
                Ok(_) => {}
                Err(Wrong::Text(why)) => return Err(format!("[takes] when `{condition}`: {why}")),
            }
        }
        Ok(None)
    }
}

impl Subject {
    /// Returns true if a mapping restricts the shapes.
    pub fn is_choosy(&self) -> bool {
        self.file.as_ref().is_some_and(|f| !f.takes.rules.is_empty() || !f.takes.when.is_empty())
    }

    /// Returns true if a mapping has a tolerance.
    pub fn has_tolerance(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.tolerated.is_some())
    }

    /// The problem with each parameter moved to a value that a mapping supports; conditions are not
    /// checked. `pick(n)` draws a number below `n`.
    pub fn fitted(&self, mut problem: Problem, pick: &mut dyn FnMut(u32) -> u32) -> Problem {
        for rule in self.file.iter().flat_map(|file| &file.takes.rules) {
            let value = problem.shape.get(rule.param.name).unwrap_or_default();
            let fitting = match &rule.allowed {
                allowed if allowed.has(value) => continue,
                Allowed::Values(values) => values[pick(values.len() as u32) as usize],
                Allowed::MultipleOf(n) => {
                    let n = f64::from(*n);
                    (value / n).ceil().max(1.0) * n
                }
            };
            problem.set(rule.param, fitting);
        }
        problem
    }

    /// The nearest problem that a mapping supports. If a condition limits the state, it is the
    /// largest one allowed, or any before it; none if a condition fails all the same. `pick(n)`
    /// draws a number below `n`.
    pub fn within(
        &self,
        problem: Problem,
        caps: &Capabilities,
        pick: &mut dyn FnMut(u32) -> u32,
    ) -> Option<Problem> {
        let Some(file) = &self.file else { return Some(problem) };
        let problem = self.fitted(problem, pick);
        let is_taken = |problem: &Problem| {
            let names = file.names(&problem.shape, Some(problem.state), caps);
            // What is wrong with a condition is said when it is planned.
            file.takes.refuses(&problem.shape, &names).map_or(true, |refusal| refusal.is_none())
        };
        if is_taken(&problem) {
            return Some(problem);
        }
        self.kernel.state.iter().find_map(|word| {
            let value = problem.get(word)? as u64;
            let with = |value: u64| {
                let mut problem = problem.clone();
                problem.set(word, value as f64);
                problem
            };
            // The first of its halves that is taken, and from there the last one before it is not.
            let halves = std::iter::successors(Some(value / 2), |v| Some(v / 2));
            let mut low = halves.take_while(|v| *v > 0).find(|v| is_taken(&with(*v)))?;
            let (first, mut beyond) = (low, value);
            while low + 1 < beyond {
                let middle = low.midpoint(beyond);
                if is_taken(&with(middle)) { low = middle } else { beyond = middle }
            }
            let drawn = first + u64::from(pick((low - first + 1) as u32));
            let wanted = if pick(2) == 0 { low } else { drawn };
            [wanted, low].map(with).into_iter().find(is_taken)
        })
    }
}

impl Rule {
    fn read(name: &str, taken: &Numbers, kernel: &'static Kernel) -> Result<Self, String> {
        let texts = taken.texts();
        if kernel.state.iter().any(|p| p.is_called(name)) {
            return Err(format!(
                "{name} is state, which a condition may name: when = \"{name} <= 4\""
            ));
        }
        let param = kernel.params.iter().find(|p| p.is_called(name)).ok_or_else(|| {
            let known: Vec<_> = kernel.params.iter().map(|p| p.name).collect();
            format!("{name} is no parameter of {}; it has {}", kernel.name, known.join(", "))
        })?;
        let multiple = match texts.as_slice() {
            [text] => text.strip_prefix("multiple of "),
            _ => None,
        };
        if let Some(n) = multiple {
            if !matches!(param.kind, ParamKind::Dim { .. } | ParamKind::Start { .. }) {
                return Err(format!("{name} = \"{}\": {name} is no size; list values", texts[0]));
            }
            let n: u32 = n.trim().parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                format!("{name} = \"{}\": expected `multiple of` and a whole number", texts[0])
            })?;
            let allowed = Allowed::MultipleOf(n);
            return Ok(Self { param, allowed, text: format!("a multiple of {n}") });
        }
        if texts.is_empty() {
            return Err(format!("{name} has no value"));
        }
        let base = kernel.default_problem();
        let values = texts.iter().map(|text| {
            let problem = kernel.parse_over(&base, &format!("{name}={text}"));
            let problem = problem.map_err(|e| e.to_string())?;
            Ok(problem.shape.get(param.name).unwrap_or_default())
        });
        let allowed = Allowed::Values(values.collect::<Result<_, String>>()?);
        Ok(Self { param, allowed, text: texts.join(" or ") })
    }
}

impl Allowed {
    fn has(&self, value: f64) -> bool {
        match self {
            Allowed::Values(values) => values.contains(&value),
            Allowed::MultipleOf(n) => value % f64::from(*n) == 0.0,
        }
    }
}
