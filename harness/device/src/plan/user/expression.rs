//! Arithmetic over named numbers. From what binds least: `a ? b : c`, `||`, `&&`, comparisons,
//! `+ -`, `* / %`, a sign or `!`, parentheses and functions. What is true is 1, what is false 0.

use std::collections::{BTreeMap, BTreeSet};

use lathe_kernels::Constants;

/// What expressions may name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    values: BTreeMap<String, f64>,
    /// Those that an error lists.
    listed: BTreeSet<String>,
    /// Why some have no value, though they are names.
    withheld: BTreeMap<String, &'static str>,
}

impl Names {
    /// Adds a name that errors list. It hides an earlier one.
    pub(super) fn add(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
        self.listed.insert(name.to_owned());
    }

    /// These and the values of overrides.
    pub(super) fn with(&self, constants: &Constants) -> Self {
        let mut names = self.clone();
        for (name, value) in constants {
            names.add(name, *value);
        }
        names
    }

    /// Adds a name that errors list and that has no value; they say why.
    pub(super) fn withhold(&mut self, name: &str, why: &'static str) {
        self.withheld.insert(name.to_owned(), why);
        self.listed.insert(name.to_owned());
    }

    /// Adds a name that errors do not list, unless there is one.
    pub(super) fn add_quietly(&mut self, name: &str, value: f64) {
        self.values.entry(name.to_owned()).or_insert(value);
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wrong {
    /// It is none.
    Text(String),
    /// Its names have values for which it has none.
    Value(String),
}

impl Wrong {
    pub(super) fn text<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Text(why.into()))
    }
}

/// The value of `text`; an error says what is wrong in it.
pub(super) fn evaluate(text: &str, names: &Names) -> Result<f64, Wrong> {
    let mut parser = Parser { rest: text, names, depth: 0, skips: 0 };
    let value = parser.choice()?;
    parser.skip();
    match parser.rest {
        "" if value.is_finite() => Ok(value),
        "" => Err(Wrong::Value("is not a finite number".into())),
        rest => Wrong::text(format!("`{rest}` is left over")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    names: &'a Names,
    depth: usize,
    /// Sides that are read and not taken: what they divide by does not matter.
    skips: usize,
}

/// Expressions within each other; more are a mistake, and the stack is not endless.
const DEEPEST: usize = 64;

/// A function of one number.
type One = fn(f64) -> f64;

/// A function of two.
type Two = fn(f64, f64) -> f64;

/// Operators between two sides, from those that bind least. Where one begins with another it comes
/// first.
const LEVELS: [&[(&str, Two)]; 5] = [
    &[("||", |a, b| truth(a != 0.0 || b != 0.0))],
    &[("&&", |a, b| truth(a != 0.0 && b != 0.0))],
    &[
        ("==", |a, b| truth(a == b)),
        ("!=", |a, b| truth(a != b)),
        ("<=", |a, b| truth(a <= b)),
        (">=", |a, b| truth(a >= b)),
        ("<", |a, b| truth(a < b)),
        (">", |a, b| truth(a > b)),
    ],
    &[("+", |a, b| a + b), ("-", |a, b| a - b)],
    // What is left of a division is as long division leaves it: never negative.
    &[("*", |a, b| a * b), ("/", |a, b| a / b), ("%", f64::rem_euclid)],
];

/// The level of comparisons, of which one does not follow another.
const COMPARISONS: usize = 2;

/// Functions of one number.
const ONE: &[(&str, One)] = &[
    ("abs", f64::abs),
    ("ceil", f64::ceil),
    ("floor", f64::floor),
    ("log2", f64::log2),
    ("round", f64::round),
    ("sqrt", f64::sqrt),
];

/// Functions of two.
const TWO: &[(&str, Two)] = &[("max", f64::max), ("min", f64::min), ("pow", f64::powf)];

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, symbol: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Wrong> {
        if self.take(symbol) { Ok(()) } else { Wrong::text(format!("expected `{symbol}`")) }
    }

    /// A side that counts only if it is taken.
    fn side(
        &mut self,
        taken: bool,
        one: impl FnOnce(&mut Self) -> Result<f64, Wrong>,
    ) -> Result<f64, Wrong> {
        self.skips += usize::from(!taken);
        let value = one(self);
        self.skips -= usize::from(!taken);
        value
    }

    fn choice(&mut self) -> Result<f64, Wrong> {
        self.nested(|parser| {
            let condition = parser.operation(0)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.side(condition != 0.0, Self::choice)?;
            parser.expect(":")?;
            let no = parser.side(condition == 0.0, Self::choice)?;
            Ok(if condition != 0.0 { yes } else { no })
        })
    }

    /// Sides with operators of a level between them, from the left.
    fn operation(&mut self, level: usize) -> Result<f64, Wrong> {
        let Some(operators) = LEVELS.get(level) else { return self.signed() };
        let mut value = self.operation(level + 1)?;
        while let Some((symbol, of)) = operators.iter().find(|(symbol, _)| self.take(symbol)) {
            let taken = match *symbol {
                "||" => value == 0.0,
                "&&" => value != 0.0,
                _ => true,
            };
            let other = match self.side(taken, |parser| parser.operation(level + 1))? {
                0.0 if matches!(*symbol, "/" | "%") && self.skips > 0 => 1.0,
                0.0 if matches!(*symbol, "/" | "%") => {
                    return Err(Wrong::Value("divides by zero".into()));
                }
                other => other,
            };
            value = of(value, other);
            if level == COMPARISONS {
                break;
            }
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<f64, Wrong> {
        self.nested(|parser| {
            if parser.take("-") {
                return Ok(-parser.signed()?);
            }
            if parser.take("!") {
                return Ok(truth(parser.signed()? == 0.0));
            }
            parser.atom()
        })
    }

    fn nested(&mut self, one: impl FnOnce(&mut Self) -> Result<f64, Wrong>) -> Result<f64, Wrong> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Wrong::text("is nested too deeply");
        }
        let value = one(self);
        self.depth -= 1;
        value
    }

    /// The digits, point and exponent of a number at the beginning of what is left.
    fn number(&self) -> usize {
        let digits = |from: usize| {
            let rest = &self.rest[from..];
            from + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
        };
        let mut end = digits(0);
        if self.rest[end..].starts_with('.') {
            end = digits(end + 1);
        }
        let exponent = self.rest[end..].strip_prefix(['e', 'E']);
        if let Some(rest) = exponent {
            let sign = usize::from(rest.starts_with(['+', '-']));
            let last = digits(end + 1 + sign);
            if last > end + 1 + sign {
                end = last;
            }
        }
        end
    }

    fn atom(&mut self) -> Result<f64, Wrong> {
        if self.take("(") {
            let value = self.choice()?;
            self.expect(")")?;
            return Ok(value);
        }
        self.skip();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let is_number = self.rest.starts_with(|c: char| c.is_ascii_digit());
        let end = match is_number {
            true => self.number(),
            false => self.rest.find(|c| !word(c)).unwrap_or(self.rest.len()),
        };
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name.is_empty() {
            return Wrong::text("expected a number or a name");
        }
        if is_number {
            return name.parse().map_err(|_| Wrong::Text(format!("`{name}` is no number")));
        }
        if let Some((_, of)) = ONE.iter().find(|(known, _)| *known == name) {
            self.expect("(")?;
            let value = self.choice()?;
            self.expect(")")?;
            return Ok(of(value));
        }
        if let Some((_, of)) = TWO.iter().find(|(known, _)| *known == name) {
            self.expect("(")?;
            let a = self.choice()?;
            self.expect(",")?;
            let b = self.choice()?;
            self.expect(")")?;
            return Ok(of(a, b));
        }
        self.names.values.get(name).copied().ok_or_else(|| {
            if let Some(why) = self.names.withheld.get(name) {
                return Wrong::Text(format!("`{name}` {why}"));
            }
            let known: Vec<_> = self.names.listed.iter().map(String::as_str).collect();
            Wrong::Text(format!("no `{name}`; there are {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        let mut names = Names::default();
        for (name, value) in [("ROWS", 10.0), ("K", 4.0), ("ZERO", 0.0)] {
            names.add(name, value);
        }
        names.add_quietly("WEIGHT.f16", 1.0);
        names.add_quietly("K", 5.0);
        names.withhold("N_KV", "changes from step to step");
        evaluate(text, &names).map_err(|wrong| match wrong {
            Wrong::Text(why) | Wrong::Value(why) => why,
        })
    }

    #[test]
    fn arithmetic() {
        for (text, expected) in [
            ("ceil(ROWS / K) * 2 + 1", 7.0),
            ("(ROWS + 3) / K - 0.25", 3.0),
            ("min(ROWS, max(K, 6))", 6.0),
            ("ROWS % K", 2.0),
            ("-7 % K", 1.0),
            ("-(ROWS) * -2 - -1", 21.0),
            ("1e-6 * 2.5E+6", 2.5),
            ("sqrt(K) + pow(2, 3) + log2(8) + abs(-1) + round(0.6)", 15.0),
            ("1 / sqrt(K)", 0.5),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn conditions() {
        for (text, expected) in [
            ("K % 4 == 0", 1.0),
            ("ROWS != 10 || K >= 4 && K < 5", 1.0),
            ("!(ROWS > 10)", 1.0),
            ("ROWS <= 9 ? 1 : K == 4 ? 2 : 3", 2.0),
            ("WEIGHT.f16 == 1", 1.0),
            // What is not taken may divide by zero.
            ("ZERO == 0 ? 5 : 1 / ZERO", 5.0),
            ("ZERO != 0 && 1 / ZERO > 1", 0.0),
            ("ZERO == 0 || 1 % ZERO == 0", 1.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert!(value("ROWS / 0").unwrap_err().contains("zero"));
        assert!(value("ROWS % ZERO").unwrap_err().contains("zero"));
        assert!(value("COLS").unwrap_err().ends_with("there are K, N_KV, ROWS, ZERO"));
        assert_eq!(value("K + N_KV").unwrap_err(), "`N_KV` changes from step to step");
        assert!(value("ROWS ROWS").unwrap_err().contains("left over"));
        assert!(value("1e").unwrap_err().contains("left over"));
        assert_eq!(value("1 < 2 < 3").unwrap_err(), "`< 3` is left over");
        assert!(value("(ROWS").unwrap_err().contains('`'));
        assert!(value("K ? 1").unwrap_err().contains("expected `:`"));
        assert!(value("").unwrap_err().contains("expected"));
        assert!(value("sqrt(-1)").unwrap_err().contains("finite"));
        for deep in ["(", "-", "!", "K ? 1 : ", "sqrt("] {
            assert!(value(&deep.repeat(100_000)).unwrap_err().contains("deeply"), "{deep}");
        }
    }
}
