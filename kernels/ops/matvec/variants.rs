//! The variants of the family: which modules make each, and what its header says.
//!
//! A row is a prologue (how x is loaded, and what lanes add up), rows (how the matrix is stored and
//! decoded), a schedule (which lanes read what, and the entry point) and an epilogue (where
//! products go): modules in the folders of these names. The build script reads the tables too, so
//! nothing here uses the crate.

#[path = "fused_ffn/variants.rs"]
mod fused_ffn;
#[path = "gemv/variants.rs"]
mod gemv;
#[path = "gemv_q/variants.rs"]
mod gemv_q;
#[path = "lm_head_argmax/variants.rs"]
mod lm_head_argmax;
#[path = "lm_head_topk/variants.rs"]
mod lm_head_topk;
#[path = "matmul_rmsnorm_fused/variants.rs"]
mod matmul_rmsnorm_fused;
#[path = "norm_gemv/variants.rs"]
mod norm_gemv;
#[path = "residual_norm_ffn/variants.rs"]
mod residual_norm_ffn;
#[path = "residual_norm_gemv/variants.rs"]
mod residual_norm_gemv;

/// Variants of one operation that are rows of a table. `naive` is a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Folder of the operation.
    pub operation: &'static str,
    /// Its variants.
    pub rows: &'static [Row],
}

/// One variant.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Prologue, rows, schedule and epilogue: modules of the folders of these names, or of the
    /// library where a name has a slash; several are separated by a comma and a space.
    pub modules: [&'static str; 4],
    /// What it is, for the header's first line.
    pub summary: &'static str,
    /// What it computes, with shapes.
    pub formula: &'static [&'static str],
    /// Why it may be fast; a line more for its source.
    pub idea: &'static str,
}

/// All tables.
pub const FAMILIES: &[Family] = &[
    gemv::VARIANTS,
    gemv_q::VARIANTS,
    norm_gemv::VARIANTS,
    residual_norm_gemv::VARIANTS,
    residual_norm_ffn::VARIANTS,
    matmul_rmsnorm_fused::VARIANTS,
    fused_ffn::VARIANTS,
    lm_head_argmax::VARIANTS,
    lm_head_topk::VARIANTS,
];

/// What the modules of a row are, in their order.
const ROLES: [&str; 4] = ["prologue", "rows", "schedule", "epilogue"];

/// Columns of a header.
const WIDTH: usize = 100;

impl Row {
    /// The variant's own text: its header and what it imports.
    #[must_use]
    pub fn text(&self, operation: &str) -> String {
        let mut text = format!("// {operation}/{}: {}.\n//\n", self.name, self.summary);
        for line in self.formula {
            text.push_str(&format!("//   {line}\n"));
        }
        text.push_str("//\n");
        for paragraph in format!("Idea: {}", self.idea).lines() {
            let mut line = String::from("//");
            for word in paragraph.split_whitespace() {
                if line.chars().count() + 1 + word.chars().count() > WIDTH {
                    text.push_str(&line);
                    text.push('\n');
                    line = String::from("//");
                }
                line.push(' ');
                line.push_str(word);
            }
            text.push_str(&line);
            text.push('\n');
        }
        for role in ROLES {
            for module in self.modules(role) {
                text.push_str(&format!("// import: {module}\n"));
            }
        }
        text
    }

    /// Names of the modules in one of its roles.
    pub fn modules(&self, role: &'static str) -> impl Iterator<Item = String> + use<> {
        let names = ROLES.iter().zip(self.modules).find(|(one, _)| **one == role);
        names.map_or("", |(_, names)| names).split(", ").map(move |name| match name.contains('/') {
            true => name.to_owned(),
            false => format!("matvec/{role}/{name}"),
        })
    }
}
