//! Arithmetic over named numbers. By rising precedence: comparisons, which yield 1 or 0, then `+
//! -`, then `* /`, then signs, parentheses and functions.

use std::collections::BTreeMap;

use lathe_kernels::Constants;

/// Names that expressions may use.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<String, Name>);

#[derive(Clone, Copy, Debug)]
struct Name {
    /// The value, or the reason why there is none, which follows the name in an error.
    value: Result<f64, &'static str>,
    /// True if errors list it.
    is_listed: bool,
}

impl Names {
    /// Adds a name that errors list. It shadows an earlier one.
    pub(super) fn add(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), Name { value: Ok(value), is_listed: true });
    }

    /// These names and the overrides' values.
    pub(super) fn with(&self, constants: &Constants) -> Self {
        let mut names = self.clone();
        constants.iter().for_each(|(name, value)| names.add(name, *value));
        names
    }

    /// Adds a name without a value, and the reason.
    pub(super) fn withhold(&mut self, name: &str, why: &'static str) {
        self.0.insert(name.to_owned(), Name { value: Err(why), is_listed: true });
    }

    /// Adds a name that errors do not list, unless there is one.
    pub(super) fn add_quietly(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_owned()).or_insert(Name { value: Ok(value), is_listed: false });
    }

    fn value(&self, name: &str) -> Result<f64, Wrong> {
        let Some(known) = self.0.get(name) else {
            let listed = self.0.iter().filter(|(_, name)| name.is_listed);
            let known: Vec<_> = listed.map(|(name, _)| name.as_str()).collect();
            return Wrong::text(format!("no `{name}`; there are {}", known.join(", ")));
        };
        known.value.or_else(|why| Wrong::text(format!("`{name}` {why}")))
    }
}

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wrong {
    /// The text is not an expression.
    Text(String),
    /// The expression is undefined for the values of its names.
    Value(String),
}

impl Wrong {
    pub(super) fn text<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Text(why.into()))
    }
}

/// The value of `text`; an error describes the fault in it.
pub(super) fn evaluate(text: &str, names: &Names) -> Result<f64, Wrong> {
    let mut parser = Parser { rest: text, names, depth: 0 };
    let value = parser.comparison()?;
    match parser.rest.trim_start() {
        "" if value.is_finite() => Ok(value),
        "" => Err(Wrong::Value("is not a finite number".into())),
        rest => Wrong::text(format!("`{rest}` is left over")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    names: &'a Names,
    depth: usize,
}

/// Maximum depth of nested expressions: deeper ones are a mistake, and the stack is finite.
const DEEPEST: usize = 64;

/// A comparison.
type Compare = fn(&f64, &f64) -> bool;

/// Comparison operators. One that begins with another precedes it.
const COMPARISONS: [(&str, Compare); 6] = [
    ("==", f64::eq),
    ("!=", f64::ne),
    ("<=", f64::le),
    (">=", f64::ge),
    ("<", f64::lt),
    (">", f64::gt),
];

/// A function; a function of one argument ignores the second, 0.
type Function = fn(f64, f64) -> f64;

/// Functions with the count of their arguments.
const FUNCTIONS: [(&str, usize, Function); 6] = [
    ("ceil", 1, |a, _| a.ceil()),
    ("floor", 1, |a, _| a.floor()),
    ("log2", 1, |a, _| a.log2()),
    ("max", 2, f64::max),
    ("min", 2, f64::min),
    ("pow", 2, f64::powf),
];

impl Parser<'_> {
    fn take(&mut self, symbol: &str) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Wrong> {
        if self.take(symbol) { Ok(()) } else { Wrong::text(format!("expected `{symbol}`")) }
    }

    fn comparison(&mut self) -> Result<f64, Wrong> {
        let value = self.sum()?;
        match COMPARISONS.iter().find(|(symbol, _)| self.take(symbol)) {
            None => Ok(value),
            Some((_, holds)) => Ok(f64::from(u8::from(holds(&value, &self.sum()?)))),
        }
    }

    fn sum(&mut self) -> Result<f64, Wrong> {
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value += self.product()?;
            } else if self.take("-") {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, Wrong> {
        let mut value = self.factor()?;
        loop {
            if self.take("*") {
                value *= self.factor()?;
            } else if self.take("/") {
                value /= match self.factor()? {
                    0.0 => return Err(Wrong::Value("divides by zero".into())),
                    by => by,
                };
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, Wrong> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Wrong::text("is nested too deeply");
        }
        let value = if self.take("-") {
            -self.factor()?
        } else if self.take("(") {
            let value = self.comparison()?;
            self.expect(")")?;
            value
        } else {
            self.atom()?
        };
        self.depth -= 1;
        Ok(value)
    }

    /// A number, a name or a function of expressions.
    fn atom(&mut self) -> Result<f64, Wrong> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let mut end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
        let is_number = self.rest.starts_with(|c: char| c.is_ascii_digit());
        // The sign of an exponent.
        if is_number && self.rest[..end].ends_with(['e', 'E']) {
            let rest = self.rest[end..].strip_prefix(['+', '-']).unwrap_or_default();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            end += if digits > 0 { 1 + digits } else { 0 };
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name.is_empty() {
            return Wrong::text("expected a number or a name");
        }
        if is_number {
            return name.parse().map_err(|_| Wrong::Text(format!("`{name}` is no number")));
        }
        let Some((_, count, function)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            return self.names.value(name);
        };
        self.expect("(")?;
        let a = self.comparison()?;
        let mut b = 0.0;
        if *count == 2 {
            self.expect(",")?;
            b = self.comparison()?;
        }
        self.expect(")")?;
        Ok(function(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_values_or_say_what_is_wrong() {
        let mut names = Names::default();
        for (name, value) in [("ROWS", 10.0), ("K", 4.0), ("ZERO", 0.0)] {
            names.add(name, value);
        }
        names.add_quietly("WEIGHT.f16", 1.0);
        names.add_quietly("K", 5.0);
        names.withhold("N_KV", "changes from step to step");
        for (text, expected) in [
            ("ceil(ROWS / K) * 2 + 1", 7.0),
            ("(ROWS + 3) / K - 0.25", 3.0),
            ("min(ROWS, max(K, 6))", 6.0),
            ("-(ROWS) * -2 - -1", 21.0),
            ("1e-6 * 2.5E+6", 2.5),
            ("pow(2, floor(log2(9))) + 2 * (ROWS == 10) + (K != 4)", 10.0),
            ("K - 1 < ROWS / 3", 1.0),
            ("WEIGHT.f16 >= 1", 1.0),
        ] {
            assert_eq!(evaluate(text, &names), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("ROWS / ZERO", "divides by zero"),
            ("COLS", "no `COLS`; there are K, N_KV, ROWS, ZERO"),
            ("K + N_KV", "`N_KV` changes from step to step"),
            ("ROWS ROWS", "`ROWS` is left over"),
            ("1e", "`1e` is no number"),
            ("1 < 2 < 3", "`< 3` is left over"),
            ("(ROWS", "expected `)`"),
            ("max(1)", "expected `,`"),
            ("", "expected a number or a name"),
            ("log2(-1)", "is not a finite number"),
            (&"(".repeat(100_000), "is nested too deeply"),
            (&"-".repeat(100_000), "is nested too deeply"),
            (&"ceil(".repeat(100_000), "is nested too deeply"),
        ] {
            let Err(Wrong::Text(found) | Wrong::Value(found)) = evaluate(text, &names) else {
                panic!("{text}")
            };
            assert_eq!(found, why, "{text}");
        }
    }
}
