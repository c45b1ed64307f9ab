//! Preludes: shared WGSL that a file asks for with a line `// uses: name, name`. Used by the
//! build script for built-in variants and at run time for a user's own file.

/// Appends what `// uses:` lines name, so that the line numbers of the text itself stay, and
/// returns it with the line at which each prelude begins. The lines become `// with:`: composing
/// again adds nothing. `find` gives a prelude's text; an error is a name it does not know.
pub(crate) fn compose(
    text: &str,
    find: impl Fn(&str) -> Option<String>,
) -> Result<(String, Vec<(String, usize)>), String> {
    const USES: &str = "// uses:";
    let mut composed = String::with_capacity(text.len());
    let mut wanted = Vec::new();
    for line in text.lines() {
        match line.strip_prefix(USES) {
            Some(names) => {
                wanted.extend(names.split(',').map(|n| n.trim().to_owned()));
                composed.push_str("// with:");
                composed.push_str(names);
            }
            None => composed.push_str(line),
        }
        composed.push('\n');
    }
    let mut preludes = Vec::with_capacity(wanted.len());
    for name in wanted {
        let body = find(&name).ok_or_else(|| name.clone())?;
        preludes.push((name, composed.lines().count() + 1));
        composed.push_str(&body);
    }
    Ok((composed, preludes))
}
