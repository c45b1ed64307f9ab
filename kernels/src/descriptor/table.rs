//! Tables of problems that are checked and timed for an operation.

use super::Kernel;
use crate::param::{Problem, ShapeError};

/// Heads of models' layers, as far as an operation has such parameters: Gemma 3 1B, Llama 3.2 1B
/// and Qwen3 0.6B.
const LAYERS: [(&str, &str); 3] = [
    ("gemma", "Q_PER_KV=4,KV_HEADS=1,HEAD_DIM=256,QK_NORM=rms,ROPE_STYLE=neox,SCALE=0.0625"),
    ("llama", "Q_PER_KV=4,KV_HEADS=8,HEAD_DIM=64,QK_NORM=none,ROPE_STYLE=interleaved,SCALE=0.125"),
    ("qwen", "Q_PER_KV=2,KV_HEADS=8,HEAD_DIM=128,QK_NORM=rms,ROPE_STYLE=neox,SCALE=0.088388346"),
];

impl Kernel {
    /// Reads a table of problems. They are written as for `--shape`, one a line or separated by
    /// semicolons; parameters that one does not name have the plainest value. `A=1|2,B=3|4` are
    /// four, of which the last name changes soonest. The lines indented below one that ends with a
    /// colon are read over each of its problems. `LAYER=gemma` stands for the heads of a
    /// [model](LAYERS). A comment begins with `#`.
    ///
    /// ```text
    /// EPS=1e-6:
    ///     K=1152,ROWS=33|65; K=2048,ROWS=17
    ///     WEIGHT=f32|f16:         # of either format two
    ///         K=7,ROWS=3
    ///         K=1003,ROWS=9,Y_OFFSET=1
    /// ```
    ///
    /// # Errors
    /// A line is no shape of this operation, or a parameter without a plainest value has none.
    pub fn read(&self, table: &str) -> Result<Vec<Problem>, ShapeError> {
        let lines = table.lines().map(|line| line.split('#').next().unwrap_or_default());
        let lines = lines.map(|line| (line.len() - line.trim_start().len(), line.trim()));
        let lines: Vec<_> = lines.filter(|(_, text)| !text.is_empty()).collect();
        let mut plain = Problem::default();
        for param in self.params {
            if let Some(value) = param.plainest() {
                plain.set(param, value);
            }
        }
        let mut found = Vec::new();
        self.read_lines(&lines, &plain, &mut found)?;
        let misses = |name: &str| found.iter().any(|p| p.shape.get(name).is_none());
        match self.params.iter().find(|param| misses(param.name)) {
            None => Ok(found),
            Some(param) => Err(ShapeError::Missing {
                kernel: self.name,
                text: table.to_owned(),
                name: param.name,
            }),
        }
    }

    fn read_lines(
        &self,
        lines: &[(usize, &str)],
        over: &Problem,
        found: &mut Vec<Problem>,
    ) -> Result<(), ShapeError> {
        let mut rest = lines;
        while let Some(((indent, line), after)) = rest.split_first() {
            let below = after.iter().take_while(|(own, _)| own > indent).count();
            let (block, behind) = after.split_at(below);
            for problem in self.read_line(line.trim_end_matches(':'), over)? {
                match line.ends_with(':') {
                    true => self.read_lines(block, &problem, found)?,
                    false => found.push(problem),
                }
            }
            if !line.ends_with(':') && below > 0 {
                return Err(ShapeError::Form(format!("{line}, with lines below it and no colon")));
            }
            rest = behind;
        }
        Ok(())
    }

    fn read_line(&self, line: &str, over: &Problem) -> Result<Vec<Problem>, ShapeError> {
        let mut all = Vec::new();
        for one in line.split(';') {
            let mut problems = vec![over.clone()];
            for part in one.split(',') {
                let (name, values) =
                    part.split_once('=').ok_or_else(|| ShapeError::Form(part.to_owned()))?;
                let mut next = Vec::new();
                for problem in &problems {
                    for value in values.split('|') {
                        next.push(self.set(problem, name.trim(), value)?);
                    }
                }
                problems = next;
            }
            all.extend(problems);
        }
        Ok(all)
    }

    fn set(&self, over: &Problem, name: &str, value: &str) -> Result<Problem, ShapeError> {
        let heads = LAYERS.iter().find(|(layer, _)| name == "LAYER" && *layer == value);
        let Some((_, heads)) = heads else {
            return self.parse_over(over, &format!("{name}={value}"));
        };
        let has =
            |part: &&str| self.params.iter().any(|p| part.starts_with(&[p.name, "="].concat()));
        let own: Vec<_> = heads.split(',').filter(has).collect();
        self.parse_over(over, &own.join(","))
    }
}
