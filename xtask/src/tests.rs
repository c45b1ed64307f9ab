#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lathe_harness::data::row::{Kind, Run};

use super::*;

#[test]
fn pages_are_what_declarations_and_records_say() {
    let stale = docs(&root(), true).unwrap();
    assert!(stale.is_empty(), "\n{}\n", stale.join("\n"));
}

#[test]
fn blocks_are_replaced_and_the_rest_of_a_page_stays() {
    let mut echo = |block: &str| match block {
        "unknown" => Err("no such kind".to_owned()),
        block => Ok(format!("<{block}>")),
    };
    let block = |name: &str, old: &str| format!("{BEGIN}{name} -->{old}\n{END}\n");
    let page = format!("# a\n\n{}\nb\n{}", block("one two", "\nold"), block("three", ""));
    let expected = format!(
        "# a\n\n{}\nb\n{}",
        block("one two", "\n\n<one two>\n"),
        block("three", "\n\n<three>\n")
    );
    let once = filled(&page, &mut echo).unwrap();
    assert_eq!(once, expected);
    assert_eq!(filled(&once, &mut echo).unwrap(), once);
    for (page, fault) in [
        (block("unknown", ""), "block `unknown`: no such kind"),
        (format!("{BEGIN}one -->\n"), "no line <!-- end --> ends the block `one`"),
        (format!("{BEGIN}one\n{END}\n"), "has no end"),
    ] {
        let found = filled(&page, &mut echo).unwrap_err();
        assert!(found.contains(fault), "{found}");
    }
    let found = difference("docs/a.md", "# a\none\n", "# a\n1\n");
    assert!(found.starts_with("docs/a.md is stale from line 2; `./x docs` writes it\n"), "{found}");
    assert!(found.contains("committed: one\n  generated: 1"), "{found}");
}

#[test]
fn faults_of_a_block_are_named() {
    let measurements = Measurements::read(&root().join(measured::FOLDER)).unwrap();
    for (block, fault) in [
        ("kernel nonsense", "no such operation"),
        ("record cli/tests/records/none.json", "none.json"),
        ("nonsense", "no such kind"),
    ] {
        let found = contents(&root(), block, &measurements).unwrap_err();
        assert!(found.contains(fault), "{block}: {found}");
    }
}

#[test]
fn lists_are_broken_at_100_columns_and_cells_stay_whole() {
    let text = markdown::list(["word ".repeat(40), "`x`: short".into()]);
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), 2);
    assert_eq!(markdown::plain("2|x| of vec4<u32>"), "2\\|x\\| of vec4\\<u32>");
    assert_eq!([1234.6, 99.96, 4.2].map(markdown::digits), ["1235", "100", "4.20"]);
    assert_eq!([0.0, 1.0 / 1024.0, 9e-6].map(markdown::small), ["0", "2^-10", "9e-6"]);
}

/// Pages link to files that exist.
#[test]
fn no_link_is_dead() {
    let mut dead = Vec::new();
    for page in pages(&root()).unwrap() {
        let text = read(&root(), &page).unwrap();
        let folder = root().join(&page).parent().unwrap().to_owned();
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let definitions = text.lines().filter(|line| line.starts_with('['));
        let defined = definitions.filter_map(|line| Some(line.split_once("]: ")?.1));
        for link in inline.chain(defined) {
            let file = link.split('#').next().unwrap();
            let elsewhere = file.is_empty() || file.contains("://") || file.contains(' ');
            if !elsewhere && !folder.join(file).exists() {
                dead.push(format!("{page} links to {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// The figures that a reader meets first are those of the verified records that their rows link
/// to, and the picture has the same.
#[test]
fn the_headline_is_what_its_records_say() {
    let (readme, picture) = (read(&root(), "README.md"), read(&root(), "docs/decode.svg"));
    let (readme, picture) = (readme.unwrap(), picture.unwrap());
    let mut seen = 0;
    for line in readme.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [model, ours, theirs, ratio] = cells[..] else { continue };
        let definition = format!("[{}]: ", model.rsplit(['[', ']']).nth(1).unwrap());
        let link = readme.lines().find_map(|line| line.strip_prefix(definition.as_str())).unwrap();
        let [run] = &Run::read(&root().join(link)).unwrap()[..] else { panic!("{link}") };
        let [test, beside] = &run.rows[..] else { panic!("{link}: no two rows") };
        assert_eq!((test.kind, beside.kind), (Kind::Test, Kind::Beside), "{link}");
        let [a, b] = [test, beside].map(|row| row.tok_s.unwrap());
        let row = [format!("{a:.0}"), format!("{b:.0}"), format!("{:.2}", a / b)];
        assert_eq!([ours, theirs, ratio], row.each_ref().map(String::as_str), "{model}");
        assert!(test.nmse < test.nmse_bound, "{link}: not verified");
        assert_eq!(run.environment.dirty, Some(false), "{link}");
        for figure in &row[..2] {
            assert!(picture.contains(&format!(">{figure}</text>")), "{model}: {figure}");
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// The build script validates with the version that the device compiles with, and records name it.
#[test]
fn the_lock_file_has_one_pair_of_wgpu_and_naga() {
    use lathe_harness::gpu::{NAGA_VERSION, WGPU_VERSION};
    let lock = read(&root(), "Cargo.lock").unwrap();
    for (name, version) in [("naga", NAGA_VERSION), ("wgpu", WGPU_VERSION)] {
        assert_eq!(lock.matches(&format!("name = \"{name}\"\n")).count(), 1, "{name}");
        let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&locked), "{name} {version}");
    }
    assert_eq!(NAGA_VERSION, WGPU_VERSION);
}
