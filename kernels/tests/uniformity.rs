//! The uniformity analysis against the verdicts of Tint.

use lathe_kernels::uniformity::{Scope, violations};
use naga::TypeInner;

const SNIPPETS: &str = include_str!("uniformity.txt");
const DIAGNOSTIC_OFF: &str = "diagnostic(off, subgroup_uniformity);";

/// Title and text of each snippet, and the declarations that all use.
fn snippets() -> (Vec<(&'static str, &'static str)>, &'static str) {
    let mut parts: Vec<_> =
        SNIPPETS.split("\n#### ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    let (title, declarations) = parts.pop().expect("declarations");
    assert_eq!(title, "declarations");
    (parts, declarations)
}

/// The text as naga parses it: directives that it does not know leave empty lines.
fn known(text: &str) -> String {
    let is_unknown = |line: &&str| {
        ["enable subgroups", "requires subgroup_id", "diagnostic("]
            .iter()
            .any(|d| line.starts_with(d))
    };
    let lines = text.lines().map(|line| if is_unknown(&line) { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

fn parsed(text: &str) -> naga::Module {
    naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(text)))
}

#[test]
fn violations_are_those_that_tint_finds() {
    let (snippets, declarations) = snippets();
    assert!(snippets.len() > 100, "{}", snippets.len());
    let mut wrong = Vec::new();
    for (title, text) in snippets {
        let text = format!("{text}\n{declarations}");
        let (verdict, name) = title.split_once(": ").expect("a verdict and a name");
        let is_off = text.contains(DIAGNOSTIC_OFF);
        let text = known(&text);
        let found = violations(&parsed(&text));
        let found: Vec<_> =
            found.iter().filter(|v| v.scope == Scope::Workgroup || !is_off).collect();
        let lines: Vec<_> =
            found.iter().map(|v| v.at.location(&text).line_number.to_string()).collect();
        let own = match lines.as_slice() {
            [] => "accepted".to_owned(),
            lines => format!("refused {}", lines.join(" ")),
        };
        if own != verdict {
            wrong.push(format!("{name}: Tint {verdict}, here {own}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn built_in_kernels_are_uniform() {
    let mut wrong = Vec::new();
    for source in lathe_kernels::sources() {
        let module = parsed(source.text);
        // No browser reads these.
        let is_matrix = |ty: &naga::Type| matches!(ty.inner, TypeInner::CooperativeMatrix { .. });
        if module.types.iter().any(|(_, ty)| is_matrix(ty)) {
            continue;
        }
        for violation in violations(&module) {
            let line = violation.at.location(source.text).line_number;
            let why: Vec<_> = violation
                .because
                .iter()
                .map(|(at, why)| format!("{}: {why}", at.location(source.text).line_number))
                .collect();
            let what = violation.what;
            wrong.push(format!("{}/{}:{line}: {what}: {why:?}", source.kernel, source.variant));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
