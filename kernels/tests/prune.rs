//! Pruning of a text whose overrides have values.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lathe_kernels::Constants;
use lathe_kernels::reflect::Reflection;

const TEXT: &str = "
override FORMAT: u32;
override SIZE: u32;
override IS_WIDE: bool = false;
const ODD = 3u;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> narrow: array<u32, SIZE>;
var<workgroup> wide: array<u32, 4096>;

fn one(i: u32) -> u32 { return i + 1000u; }
fn two(i: u32) -> u32 { let doubled = one(i); return 2u * doubled; }
fn other(i: u32) -> u32 { let far = two(i); return far + 7u; }

fn of_format(i: u32) -> u32 {
    switch FORMAT {
        case 1u, 2u { return one(i); }
        case ODD {
            if (i > 7u) { break; }
            return two(i);
        }
        default { return other(i); }
    }
    return 9u;
}

@compute @workgroup_size(SIZE)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (IS_WIDE) {
        wide[lid] = other(lid);
        y[lid] = wide[lid];
        return;
    }
    narrow[lid] = of_format(lid);
    for (var i = 0u; i < 4u; i++) {
        if (FORMAT == ODD) { continue; }
        y[lid + i] = narrow[lid];
    }
}
";

fn constants(format: f64, is_wide: f64) -> Constants {
    [("FORMAT", format), ("SIZE", 32.0), ("IS_WIDE", is_wide)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

fn pruned(format: f64, is_wide: f64) -> String {
    let reflection = Reflection::of(TEXT, "prune.wgsl").unwrap();
    let (module, info) = reflection.resolved("main", &constants(format, is_wide)).unwrap();
    let flags = naga::back::wgsl::WriterFlags::empty();
    let text = naga::back::wgsl::write_string(&module, &info, flags).unwrap();
    naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    text
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str], others: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    for part in others {
        assert!(!text.contains(part), "`{part}` in {text}");
    }
}

#[test]
fn a_switch_over_a_number_is_its_case() {
    let second = pruned(2.0, 0.0);
    assert_has(&second, &["fn one", "y["], &["switch", "fn two", "fn other", "wide", "return 9"]);
    let first = pruned(1.0, 0.0).replace("FORMAT: u32 = 1u", "FORMAT: u32 = 2u");
    assert_eq!(first, second, "two selectors of one case");
    // The break of a case leaves the switch, which stays; behind `continue` nothing of a loop does.
    let odd = pruned(3.0, 0.0);
    assert_has(&odd, &["switch", "break;", "fn two", "return 9"], &["fn other", "wide", "y["]);
    let rest = pruned(8.0, 0.0);
    assert_has(&rest, &["fn other", "fn two", "fn one", "y["], &["switch", "return 9", "wide"]);
}

#[test]
fn what_stands_behind_a_return_that_always_runs_is_gone() {
    let wide = pruned(2.0, 1.0);
    assert_has(&wide, &["wide", "fn other"], &["narrow", "of_format", "for", "loop"]);
}

/// An adapter that lacks the memory refuses a text that declares it, whichever branch uses it.
#[test]
fn workgroup_memory_is_that_of_all_branches() {
    let reflection = Reflection::of(TEXT, "prune.wgsl").unwrap();
    for is_wide in [0.0, 1.0] {
        let size = reflection.workgroup("main", &constants(2.0, is_wide)).unwrap();
        assert_eq!(size, (4 * (4096 + 32), 32));
    }
    let error = reflection.workgroup("other", &constants(2.0, 0.0)).unwrap_err().to_string();
    assert!(error.contains("no entry point `other`"), "{error}");
}
