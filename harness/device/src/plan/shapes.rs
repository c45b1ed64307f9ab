//! `--shape`: one shape, or all combinations of lists and ranges of values.
//!
//! ```text
//! ROWS=1152,K=6912          one
//! ROWS=[64,128],K=1152      a list: two
//! K=64..=1024*2             a range by a factor: 64, 128, 256, 512, 1024
//! K=64..=256+64             a range by a step: 64, 128, 192, 256
//! ```

use lathe_kernels::{Capabilities, Kernel, Param, Problem, ShapeError};

use super::Subject;
use crate::error::{Error, Result, meant};

/// Maximum number of values or shapes of one text: catches a range that was not intended before it
/// runs for days.
pub const MOST: usize = 1000;

/// The only problem of a text, parsed as by [`all`].
pub fn one(kernel: &Kernel, text: Option<&str>) -> Result<Problem> {
    let mut all = all(kernel, text.unwrap_or_default())?;
    match all.len() {
        1 => Ok(all.swap_remove(0)),
        n => Err(Error::Usage(format!("--shape names {n} shapes; this takes one"))),
    }
}

/// Problems of a text; parameters that it does not name are moved to values that a user's file
/// supports.
pub fn filled(
    problems: Vec<Problem>,
    text: &str,
    file: &Subject,
    caps: &Capabilities,
) -> Result<Vec<Problem>> {
    let kernel = file.kernel;
    let parts = parts(text)?;
    let names: Vec<_> = parts.iter().filter_map(|part| part.split_once('=')).collect();
    let is_named = |word: &&Param| names.iter().any(|(name, _)| word.is_called(name.trim()));
    let words: Vec<_> = kernel.params.iter().chain(kernel.state).filter(is_named).collect();
    let fill = |problem: Problem| {
        let fitted = file.fitted(problem.clone(), &mut |_| 0);
        let mut near = file.within(fitted.clone(), caps, &mut |_| 0).unwrap_or(fitted);
        for word in &words {
            if let Some(value) = problem.get(word) {
                near.set(word, value);
            }
        }
        near
    };
    Ok(problems.into_iter().map(fill).collect())
}

/// All problems of a text, the last parameter changing first. Parameters that it does not name have
/// the values of the first benchmark.
pub fn all(kernel: &Kernel, text: &str) -> Result<Vec<Problem>> {
    let mut problems = vec![kernel.default_problem()];
    for part in parts(text)? {
        let values = values(part)?;
        let mut next = Vec::with_capacity(problems.len() * values.len());
        for problem in &problems {
            for value in &values {
                next.push(kernel.parse_over(problem, value).map_err(|e| usage(kernel, e))?);
            }
        }
        if next.len() > MOST {
            return Err(Error::Usage(format!("--shape names more than {MOST} shapes")));
        }
        problems = next;
    }
    Ok(problems)
}

/// Splits a text at the commas outside brackets.
fn parts(text: &str) -> Result<Vec<&str>> {
    let (mut parts, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err(Error::Usage(format!("--shape {text}: `{c}` too many"))),
            ',' if !inside => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(Error::Usage(format!("--shape {text}: a list ends with `]`")));
    }
    parts.push(&text[from..]);
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// `NAME=VALUE` for each value of a part.
fn values(part: &str) -> Result<Vec<String>> {
    let Some((name, value)) = part.split_once('=') else { return Ok(vec![part.to_owned()]) };
    let value = value.trim();
    let wrong = |what: String| Error::Usage(format!("--shape {part}: {what}"));
    let number = |text: &str| -> Result<usize, String> {
        text.trim().parse().map_err(|_| {
            format!("`{text}` is no whole number; a range is first..=last*factor or +step")
        })
    };
    let mut all = Vec::new();
    let list = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    for item in list.map_or_else(|| vec![value], |list| list.split(',').map(str::trim).collect()) {
        if item.is_empty() {
            return Err(wrong("a value is missing".into()));
        }
        if item.contains("..=") {
            let numbers = range(item, "..=", number).map_err(wrong)?;
            all.extend(numbers.iter().map(usize::to_string));
        } else {
            all.push(item.to_owned());
        }
        if all.len() > MOST {
            return Err(wrong(format!("more than {MOST} values")));
        }
    }
    Ok(all.into_iter().map(|value| format!("{name}={value}")).collect())
}

/// A number, or the numbers of a range: `first-last`, `first-last+step` or `first-last*factor`,
/// with `between` in place of `-`.
pub fn range(
    text: &str,
    between: &str,
    number: impl Fn(&str) -> Result<usize, String>,
) -> Result<Vec<usize>, String> {
    let Some((first, rest)) = text.split_once(between) else { return Ok(vec![number(text)?]) };
    let (last, by) = match rest.find(['*', '+']) {
        Some(at) => (&rest[..at], (&rest[at..=at], number(&rest[at + 1..])?)),
        None => (rest, ("+", 1)),
    };
    let (first, last) = (number(first)?, number(last)?);
    if last < first {
        return Err(format!("`{text}` ends before it begins"));
    }
    let (mut all, mut value) = (Vec::new(), first);
    while value <= last {
        all.push(value);
        if all.len() > MOST {
            return Err(format!("`{text}` has more than {MOST} values"));
        }
        let next = match by {
            ("*", factor) => value.saturating_mul(factor),
            (_, step) => value.saturating_add(step),
        };
        if next <= value {
            return Err(format!("`{text}` does not get on from {value}"));
        }
        value = next;
    }
    Ok(all)
}

/// A record's shape without the defaults of its kernel, where the kernel is known.
pub fn brief(kernel: &str, shape: &str) -> String {
    lathe_kernels::kernel(kernel).map_or_else(|| shape.to_owned(), |kernel| kernel.brief(shape))
}

/// The error for a shape that this kernel does not have, with a proposal for a mistyped parameter.
fn usage(kernel: &Kernel, error: ShapeError) -> Error {
    match &error {
        ShapeError::Unknown { name, .. } => {
            let known: Vec<_> = kernel.params.iter().chain(kernel.state).map(|p| p.name).collect();
            let meant = meant(&name.to_uppercase(), &known);
            Error::Usage(format!("kernel {} has no parameter `{name}`; {meant}", kernel.name))
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemv() -> &'static Kernel {
        lathe_kernels::kernel("gemv").expect("gemv")
    }

    fn shown(text: &str) -> Vec<String> {
        let all = all(gemv(), text).unwrap_or_else(|e| panic!("{text}: {e}"));
        all.iter().map(|problem| gemv().show_brief(problem)).collect()
    }

    #[test]
    fn lists_and_ranges_make_shapes() {
        assert_eq!(shown("ROWS=8,K=4"), ["ROWS=8,K=4,WEIGHT=bf16"]);
        assert_eq!(
            shown("ROWS=[8, 16],K=64..=256*2,WEIGHT=f16"),
            [
                "ROWS=8,K=64,WEIGHT=f16",
                "ROWS=8,K=128,WEIGHT=f16",
                "ROWS=8,K=256,WEIGHT=f16",
                "ROWS=16,K=64,WEIGHT=f16",
                "ROWS=16,K=128,WEIGHT=f16",
                "ROWS=16,K=256,WEIGHT=f16",
            ]
        );
        let k = |text: &str| -> Vec<f64> {
            let all = all(gemv(), text).unwrap_or_else(|e| panic!("{text}: {e}"));
            all.iter().filter_map(|problem| problem.shape.get("K")).collect()
        };
        assert_eq!(k("K=3..=5"), [3.0, 4.0, 5.0]);
        assert_eq!(k("K=64..=200+64"), [64.0, 128.0, 192.0]);
        assert_eq!(k("k=[7,64..=256*2]"), [7.0, 64.0, 128.0, 256.0]);
        assert_eq!(shown("WEIGHT=[f32,bf16]").len(), 2);
        assert_eq!(shown("").len(), 1);
    }

    #[test]
    fn what_is_no_shape_says_why() {
        for (text, why) in [
            ("ROWS=[1,2", "a list ends with `]`"),
            ("ROWS=1,2]", "`]` too many"),
            ("ROWS=[1,,2]", "a value is missing"),
            ("ROWS=[]", "a value is missing"),
            ("K=4..=2", "ends before it begins"),
            ("K=1..=8*1", "does not get on from 1"),
            ("K=0..=8*2", "does not get on from 0"),
            ("K=1..=8+0", "does not get on"),
            ("K=a..=8", "`a` is no whole number"),
            ("K=1..=100000", "more than 1000 values"),
            ("K=1..=99,ROWS=1..=99", "more than 1000 shapes"),
            ("ROW=3", "did you mean `ROWS`?"),
            ("rows", "NAME=VALUE"),
            ("WEIGHT=[f32,f33]", "f33"),
        ] {
            let error = all(gemv(), text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let error = one(gemv(), Some("K=[1,2]")).expect_err("two").to_string();
        assert!(error.contains("names 2 shapes; this takes one"), "{error}");
        assert!(one(gemv(), None).is_ok());
    }
}
