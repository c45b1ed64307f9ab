//! JSON as Python's `json.dumps` writes it, which templates were made with, floats as Python prints
//! them, and methods of its strings.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting; Python gives up at about as much.
const DEEPEST: usize = 900;

/// Most spaces per level.
const WIDEST: usize = 64;

/// The filter `tojson`: `json.dumps` with the library's options. Text takes fuel like any other.
#[allow(clippy::needless_pass_by_value, reason = "minijinja hands arguments to filters by value")]
pub(super) fn to_json(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let refuse = |why: &str| Error::new(ErrorKind::InvalidOperation, format!("tojson: {why}"));
    let [ascii, indent, separators, sorted] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let named = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = options.get(name)?;
        Ok(named.or_else(|| positional.get(at).cloned()).filter(|value| !value.is_none()))
    };
    let flag = |at, name| Ok::<_, Error>(named(at, name)?.is_some_and(|value| value.is_true()));
    let indent = match named(1, indent)? {
        None => None,
        Some(width) => {
            let width = width.as_usize().filter(|width| *width <= WIDEST);
            Some(width.ok_or_else(|| refuse("indent is a number of spaces, 64 at most"))?)
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    let separators = match named(2, separators)? {
        None => [comma.to_owned(), ": ".to_owned()],
        Some(pair) => {
            let pair: Vec<Value> = pair.try_iter()?.take(3).collect();
            match pair.iter().map(Value::as_str).collect::<Option<Vec<_>>>().as_deref() {
                Some([comma, colon]) => [(*comma).to_owned(), (*colon).to_owned()],
                _ => return Err(refuse("separators are two texts")),
            }
        }
    };
    let (ascii, sorted) = (flag(0, ascii)?, flag(3, sorted)?);
    options.assert_all_used()?;
    let mut writer =
        Writer { state, ascii, indent, separators, sorted, out: String::new(), paid: 0 };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// `str.format` with fields `{}` or `{0}`. Others can ask for any width.
pub(super) fn format(state: &mut State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let refuse =
        |why: String| Error::new(ErrorKind::InvalidOperation, format!("str.format: {why}"));
    let (mut out, mut rest, mut next) = (String::new(), text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        let field = rest.split_once('}').filter(|_| brace == "{");
        let Some((field, after)) = field else {
            return Err(refuse(format!("{brace} stands alone")));
        };
        let index = match field {
            "" => {
                next += 1;
                Some(next - 1)
            }
            field => field.parse().ok(),
        };
        let index = index.ok_or_else(|| refuse(format!("{{{field}}} is not supported")))?;
        let arg = args.get(index).filter(|arg| !arg.is_kwargs());
        let arg = arg.ok_or_else(|| refuse(format!("there is no argument {index}")))?;
        let printed = state.format(arg.clone())?;
        state.consume_fuel(1 + printed.len() as u64 / 64)?;
        out.push_str(&printed);
        rest = after;
    }
    Ok((out + rest).into())
}

/// `str.replace` with a limit. Below zero there is none.
pub(super) fn replace(
    state: &mut State,
    text: &str,
    from: &Value,
    to: &Value,
    count: &Value,
) -> Result<Value, Error> {
    let (Some(from), Some(to), Some(count)) = (from.as_str(), to.as_str(), count.as_i64()) else {
        return Err(Error::new(ErrorKind::InvalidOperation, "str.replace: two texts and a count"));
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(from).take(count).count();
    state.consume_fuel(1 + (text.len() as u64 + found as u64 * to.len() as u64) / 64)?;
    Ok(text.replacen(from, to, found).into())
}

/// `str.removeprefix`, `str.removesuffix` and `str.rsplit`, the last with a separator.
pub(super) fn cut(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let refuse = || {
        let why = format!("str.{name} with these arguments is not supported");
        Error::new(ErrorKind::UnknownMethod, why)
    };
    let (first, rest) = args.split_first().ok_or_else(refuse)?;
    let part = first.as_str().ok_or_else(refuse)?;
    Ok(match (name, rest) {
        ("removeprefix", []) => text.strip_prefix(part).unwrap_or(text).into(),
        ("removesuffix", []) => text.strip_suffix(part).unwrap_or(text).into(),
        ("rsplit", [] | [_]) if !part.is_empty() => {
            let most = rest.first().map_or(Some(-1), Value::as_i64).ok_or_else(refuse)?;
            let most = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
            let mut parts: Vec<&str> = text.rsplitn(most, part).collect();
            parts.reverse();
            parts.into_iter().map(Value::from).collect()
        }
        _ => return Err(refuse()),
    })
}

/// A finite float as Python prints it; none for other values.
pub(super) fn float(value: &Value) -> Option<String> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    let finite = is_float && f64::try_from(value.clone()).is_ok_and(f64::is_finite);
    finite.then(|| number(value))
}

struct Writer<'s> {
    state: &'s State<'s, 's>,
    ascii: bool,
    indent: Option<usize>,
    separators: [String; 2],
    sorted: bool,
    out: String,
    /// Bytes that took fuel.
    paid: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let refuse =
            |why: String| Error::new(ErrorKind::InvalidOperation, format!("tojson: {why}"));
        if depth > DEEPEST {
            return Err(refuse(format!("more than {DEEPEST} levels")));
        }
        // One per value and one per 64 bytes, as the interpreter counts.
        let new = (self.out.len() - self.paid) / 64;
        self.paid += new * 64;
        self.state.consume_fuel(1 + new as u64)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort_by_key(ToString::to_string);
                }
                let is_empty = keys.is_empty();
                self.out.push('{');
                for (i, key) in keys.into_iter().enumerate() {
                    self.begin(i, depth + 1);
                    match key.kind() {
                        ValueKind::None => self.text("null"),
                        ValueKind::Bool => self.text(if key.is_true() { "true" } else { "false" }),
                        ValueKind::Number => self.text(&number(&key)),
                        _ => self.text(&key.to_string()),
                    }
                    self.out.push_str(&self.separators[1]);
                    self.value(&value.get_item(&key)?, depth + 1)?;
                }
                self.end(is_empty, depth);
                self.out.push('}');
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let mut is_empty = true;
                self.out.push('[');
                for (i, item) in value.try_iter()?.enumerate() {
                    is_empty = false;
                    self.begin(i, depth + 1);
                    self.value(&item, depth + 1)?;
                }
                self.end(is_empty, depth);
                self.out.push(']');
            }
            kind => return Err(refuse(format!("{kind} is no JSON"))),
        }
        Ok(())
    }

    /// Begins element `i`.
    fn begin(&mut self, i: usize, depth: usize) {
        if i > 0 {
            self.out.push_str(&self.separators[0]);
        }
        self.line(depth);
    }

    fn end(&mut self, is_empty: bool, depth: usize) {
        if !is_empty {
            self.line(depth);
        }
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c) && c != '\u{7f}') => {
                    let mut units = [0; 2];
                    let units = c.encode_utf16(&mut units).iter();
                    units.for_each(|unit| self.out.push_str(&format!("\\u{unit:04x}")));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python prints it: floats have a point or an exponent of two digits.
fn number(value: &Value) -> String {
    let Some(float) = (!value.is_integer()).then(|| f64::try_from(value.clone()).ok()).flatten()
    else {
        return value.to_string();
    };
    if !float.is_finite() {
        let name = if float.is_nan() { "NaN" } else { "Infinity" };
        return if float < 0.0 { format!("-{name}") } else { name.to_owned() };
    }
    let shortest = format!("{float:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..=15 => format!("{float:?}"),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}
