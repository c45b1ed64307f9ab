//! Tables for the terminal, for Markdown and for the HTML page.

use std::collections::BTreeMap;

use crate::markup::{NONE, figure, text};

/// Setting of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// Left, monospaced.
    Name,
    /// Left, wrapping.
    Prose,
    /// Right, digits of one width.
    Figure,
    /// HTML of [`crate::markup::made`]; all other cells are plain text.
    Made,
}

/// A table with a title and the meaning of its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Measured quantity, with the unit.
    pub title: String,
    /// Method of measurement.
    pub note: String,
    columns: Vec<(String, Set)>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Headings of groups as HTML, by the place of their first row.
    groups: BTreeMap<usize, String>,
}

impl Table {
    /// A table without rows. A column whose name begins with `>` has figures, with `~` prose, with
    /// `*` HTML; others have names.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let column = |name: String| match name.split_at_checked(1) {
            Some((">", name)) => (name.to_owned(), Set::Figure),
            Some(("~", name)) => (name.to_owned(), Set::Prose),
            Some(("*", name)) => (name.to_owned(), Set::Made),
            _ => (name, Set::Name),
        };
        Self {
            title: title.into(),
            note: String::new(),
            columns: columns.into_iter().map(|name| column(name.into())).collect(),
            rows: Vec::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Begins a group of rows under a heading, which is HTML.
    pub(crate) fn group(&mut self, heading: String) {
        self.groups.insert(self.rows.len(), heading);
    }

    /// The table alone in Markdown, its columns of one width for a terminal.
    pub fn text(&self) -> String {
        let escape = |text: &String| {
            text.replace(char::is_control, " ").replace('|', "\\|").replace('<', "\\<")
        };
        let names: Vec<String> = self.columns.iter().map(|(name, _)| escape(name)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(escape).collect());
        let lines: Vec<Vec<String>> = std::iter::once(names).chain(rows).collect();
        let wide =
            |i: usize| lines.iter().map(|cells| cells[i].chars().count()).max().unwrap_or(0).max(3);
        let columns: Vec<(usize, bool)> =
            (0..self.columns.len()).map(|i| (wide(i), self.columns[i].1 == Set::Figure)).collect();
        let line = |cells: &Vec<String>| {
            let padded = cells.iter().zip(&columns).map(|(cell, (width, right))| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
        };
        let rules = columns.iter().map(|(width, right)| {
            let dashes = "-".repeat(width + 1);
            if *right { format!("{dashes}:") } else { format!("{dashes}-") }
        });
        let rules = rules.collect::<Vec<_>>().join("|");
        let rest: String = lines[1..].iter().map(line).collect();
        format!("{}|{rules}|\n{rest}", line(&lines[0]))
    }

    /// Title, table and note in Markdown.
    pub fn markdown(&self) -> String {
        format!("### {}\n\n{}\n{}\n", self.title, self.text(), self.note)
    }

    /// Title, table and note in HTML; nothing where there is no row.
    pub(crate) fn figure(&self) -> String {
        if self.rows.is_empty() {
            String::new()
        } else {
            figure(&self.title, &self.html(), &self.note)
        }
    }

    /// The table alone in HTML, without the columns that are empty in every row.
    pub(crate) fn html(&self) -> String {
        let says = |i: &usize| self.rows.iter().any(|row| !["", "-", NONE].contains(&&*row[*i]));
        let shown: Vec<usize> = (0..self.columns.len()).filter(says).collect();
        let class = |i: &usize| match self.columns[*i].1 {
            Set::Name => "name",
            Set::Prose => "prose",
            Set::Figure => "figure",
            Set::Made => "made",
        };
        let head = |i: &usize| {
            format!("<th scope=\"col\" class=\"{}\">{}</th>", class(i), text(&self.columns[*i].0))
        };
        let head: String = shown.iter().map(head).collect();
        let mut html =
            format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n");
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(heading) = self.groups.get(&at) {
                html.push_str(&format!(
                    "<tr class=\"group\"><th colspan=\"{}\">{heading}</th></tr>\n",
                    shown.len()
                ));
            }
            let cell = |i: &usize| {
                let made = self.columns[*i].1 == Set::Made;
                let body = if made { row[*i].clone() } else { text(&row[*i]) };
                format!("<td class=\"{}\">{body}</td>", class(i))
            };
            html.push_str(&format!("<tr>{}</tr>\n", shown.iter().map(cell).collect::<String>()));
        }
        html + "</tbody></table></div>\n"
    }
}
