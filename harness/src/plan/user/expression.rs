//! Arithmetic over named numbers: `+ - * /`, parentheses, `ceil(x)`, `floor(x)`, `min(a, b)`,
//! `max(a, b)`.

use std::collections::BTreeMap;

/// The value of `text`; an error says what is wrong in it.
pub(super) fn evaluate(text: &str, names: &BTreeMap<String, f64>) -> Result<f64, String> {
    let mut parser = Parser { rest: text, names, depth: 0 };
    let value = parser.sum()?;
    parser.skip();
    match parser.rest {
        "" if value.is_finite() => Ok(value),
        "" => Err("is not a finite number".into()),
        rest => Err(format!("`{rest}` is left over")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    names: &'a BTreeMap<String, f64>,
    depth: usize,
}

/// Parentheses within each other; more are a mistake, and the stack is not endless.
const DEEPEST: usize = 64;

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, symbol: char) -> bool {
        self.skip();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(format!("expected `{symbol}`")) }
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value += self.product()?;
            } else if self.take('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.atom()?;
        loop {
            if self.take('*') {
                value *= self.atom()?;
            } else if self.take('/') {
                let by = self.atom()?;
                if by == 0.0 {
                    return Err("divides by zero".into());
                }
                value /= by;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("is nested too deeply".into());
        }
        let value = self.nested();
        self.depth -= 1;
        value
    }

    fn nested(&mut self) -> Result<f64, String> {
        if self.take('(') {
            let value = self.sum()?;
            self.expect(')')?;
            return Ok(value);
        }
        self.skip();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name.is_empty() {
            return Err("expected a number or a name".into());
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return name.parse().map_err(|_| format!("`{name}` is no number"));
        }
        match name {
            "ceil" | "floor" => {
                self.expect('(')?;
                let value = self.sum()?;
                self.expect(')')?;
                Ok(if name == "ceil" { value.ceil() } else { value.floor() })
            }
            "min" | "max" => {
                self.expect('(')?;
                let a = self.sum()?;
                self.expect(',')?;
                let b = self.sum()?;
                self.expect(')')?;
                Ok(if name == "min" { a.min(b) } else { a.max(b) })
            }
            _ => self.names.get(name).copied().ok_or_else(|| {
                let known: Vec<_> = self.names.keys().map(String::as_str).collect();
                format!("no `{name}`; there are {}", known.join(", "))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        let names = BTreeMap::from([("ROWS".to_owned(), 10.0), ("K".to_owned(), 4.0)]);
        evaluate(text, &names)
    }

    #[test]
    fn arithmetic() {
        assert_eq!(value("ceil(ROWS / K) * 2 + 1"), Ok(7.0));
        assert_eq!(value("(ROWS + 3) / K - 0.25"), Ok(3.0));
        assert_eq!(value("min(ROWS, max(K, 6))"), Ok(6.0));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert!(value("ROWS / 0").unwrap_err().contains("zero"));
        assert!(value("COLS").unwrap_err().contains("there are K, ROWS"));
        assert!(value("ROWS ROWS").unwrap_err().contains("left over"));
        assert!(value("(ROWS").unwrap_err().contains('`'));
        assert!(value("").unwrap_err().contains("expected"));
        assert!(value(&"(".repeat(100_000)).unwrap_err().contains("deeply"));
    }
}
