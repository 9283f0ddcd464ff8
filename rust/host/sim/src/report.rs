// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Tables for people, JSON for programs, SVG for the documentation.

use plotters::prelude::*;
use serde_json::{json, Value};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A table with its goals.
pub struct Table {
    pub name: &'static str,
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// What is demanded, and whether it was reached.
    pub goals: Vec<(String, bool)>,
    pub notes: Vec<String>,
}

impl Table {
    pub fn new(name: &'static str, title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            name,
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn goal(&mut self, text: impl Into<String>, met: bool) {
        self.goals.push((text.into(), met));
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n", self.title);
        let width = |i: usize| {
            let cells = self.rows.iter().map(|r| r[i].chars().count());
            cells.chain([self.columns[i].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut s = String::from("|");
            for (cell, w) in cells.zip(&widths) {
                let _ = write!(s, " {cell:<w$} |");
            }
            s + "\n"
        };
        out += &line(&mut self.columns.iter().copied());
        out += "|";
        for w in &widths {
            out += &("-".repeat(w + 2) + "|");
        }
        out += "\n";
        for row in &self.rows {
            out += &line(&mut row.iter().map(String::as_str));
        }
        out += "\n";
        for (goal, met) in &self.goals {
            let _ = writeln!(
                out,
                "* {}: {goal}",
                if *met { "met" } else { "**not met**" }
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "* {note}");
        }
        out + "\n"
    }

    fn json(&self) -> Value {
        json!({
            "title": self.title,
            "columns": self.columns,
            "rows": self.rows,
            "goals": self.goals.iter().map(|(g, met)| json!({"goal": g, "met": met})).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// A named line of a plot.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Where results go.
pub struct Report {
    dir: PathBuf,
    pub tables: Vec<Table>,
}

impl Report {
    pub fn new(dir: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            tables: Vec::new(),
        })
    }

    /// Prints a table and keeps it.
    pub fn add(&mut self, table: Table) {
        print!("{}", table.markdown());
        self.tables.push(table);
    }

    /// Draws lines; `y` is at least the upper end of the scale. There is no text in the plot, as the
    /// drawing library would need fonts for it: labels are written into the SVG afterwards.
    pub fn plot(
        &self,
        name: &str,
        title: &str,
        axes: (&str, &str),
        y: f64,
        lines: &[Line],
    ) -> Result<(), Box<dyn std::error::Error>> {
        const COLOURS: [RGBColor; 4] = [
            RGBColor(31, 119, 180),
            RGBColor(214, 39, 40),
            RGBColor(44, 160, 44),
            RGBColor(148, 103, 189),
        ];
        let points = || lines.iter().flat_map(|l| &l.points);
        let x0 = points().map(|p| p.0).fold(f64::MAX, f64::min);
        let x1 = points().map(|p| p.0).fold(f64::MIN, f64::max);
        let y1 = points().map(|p| p.1).fold(y, f64::max);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (640, 360)).into_drawing_area();
            area.fill(&WHITE)?;
            let inner = area.margin(40, 50, 60, 20);
            let mut chart = ChartBuilder::on(&inner).build_cartesian_2d(x0..x1, 0.0..y1 * 1.02)?;
            let grid = RGBColor(220, 220, 220);
            for i in 0..=4 {
                let at = y1 * f64::from(i) / 4.0;
                chart.draw_series(LineSeries::new([(x0, at), (x1, at)], grid))?;
            }
            for (line, colour) in lines.iter().zip(COLOURS) {
                chart.draw_series(LineSeries::new(line.points.clone(), colour.stroke_width(2)))?;
                if line.points.len() < 20 {
                    let dots = line
                        .points
                        .iter()
                        .map(|p| Circle::new(*p, 3, colour.filled()));
                    chart.draw_series(dots)?;
                }
            }
            area.present()?;
        }
        let mut text = String::new();
        let mut put = |x: f64, y: f64, anchor: &str, colour: &str, s: &str| {
            let _ = writeln!(
                text,
                "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\" fill=\"{colour}\" \
                 font-family=\"sans-serif\" font-size=\"12\">{s}</text>"
            );
        };
        put(320.0, 20.0, "middle", "black", title);
        put(320.0, 350.0, "middle", "black", axes.0);
        put(60.0, 35.0, "start", "black", axes.1);
        for i in 0..=4 {
            let part = f64::from(i) / 4.0;
            let label = format!("{:.4}", y1 * part);
            let label = label.trim_end_matches('0').trim_end_matches('.');
            put(54.0, 313.0 - 270.0 / 1.02 * part, "end", "black", label);
            let at = x0 + (x1 - x0) * part;
            let label = format!("{at:.3}");
            let label = label.trim_end_matches('0').trim_end_matches('.');
            put(60.0 + 560.0 * part, 330.0, "middle", "black", label);
        }
        for (i, (line, c)) in lines.iter().zip(COLOURS).enumerate() {
            let colour = format!("rgb({},{},{})", c.0, c.1, c.2);
            put(610.0, 200.0 + 16.0 * i as f64, "end", &colour, &line.name);
        }
        let svg = svg.replace("</svg>", &(text + "</svg>"));
        std::fs::write(self.dir.join(format!("{name}.svg")), svg)?;
        Ok(())
    }

    /// Writes the JSON and Markdown files.
    pub fn finish(&self) -> std::io::Result<()> {
        let all: Value = self
            .tables
            .iter()
            .map(|t| (t.name.to_string(), t.json()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        std::fs::write(self.dir.join("results.json"), format!("{all:#}\n"))?;
        let text: String = self.tables.iter().map(Table::markdown).collect();
        std::fs::write(self.dir.join("results.md"), text)
    }
}
