//! A page that passes kernels through the WGSL compiler of the browser that opens it.

use std::collections::BTreeMap;

use serde::Serialize;

/// One source and the pipelines that are made of it.
#[derive(Clone, Debug, Serialize)]
pub struct Module {
    /// Kernel and variant.
    pub name: String,
    /// WGSL as browsers want it, `enable` lines included.
    pub code: String,
    /// WebGPU features it needs.
    pub features: Vec<&'static str>,
    /// Pipelines, all different.
    pub pipelines: Vec<Pipeline>,
}

/// An entry point with the values of all overrides.
#[derive(Clone, Debug, Serialize)]
pub struct Pipeline {
    /// Entry point.
    pub entry: String,
    /// The shape it is for.
    pub shape: String,
    /// Override values.
    pub constants: BTreeMap<String, f64>,
}

/// The page.
pub fn render(modules: &[Module]) -> String {
    let data = serde_json::to_string(modules).expect("names, texts and finite numbers");
    // Within a script element nothing may look like its end.
    let data = data.replace("</", "<\\/").replace("<!--", "<\\u0021--");
    include_str!("browser.html").replacen("/*MODULES*/[]", &data, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_cannot_end_the_script() {
        let module = Module {
            name: "a/b".into(),
            code: "// </script><!--".into(),
            features: vec!["subgroups"],
            pipelines: Vec::new(),
        };
        let page = render(&[module]);
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains("<!--"));
        assert!(page.contains(r"// <\/script><\u0021--"));
    }
}
