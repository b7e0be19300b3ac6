//! The machines side by side for a terminal and as Markdown: the matrix, the machines, and what they can run.

use std::collections::BTreeMap;

use super::{Agreement, Fleet, FleetCase, FleetCell, FleetMachine, Kind};
use crate::compare::{MachineDifference, Quantity, RatioInterval};
use crate::report::numbers::{latency, percent, plural, signed_percent, three_digits, three_digits_of_any};
use crate::report::table::{Cell, Column, Table, wrapped};
use crate::report::{Format, escape, json};

impl Fleet {
    /// The report's part about the machines, ending with a line break.
    pub fn render(&self, format: Format) -> String {
        let tables = [self.matrix(), self.table_of_machines(), self.table_of_levels()];
        // The lines are below the table of machines, which has no row if there are many equal machines.
        let lines = if tables[1].is_empty() { self.lines() } else { Vec::new() };
        let titles = ["Cases and machines", "Machines", "Compatibility over the machines"];
        let both = titles.into_iter().zip(tables).filter(|(_, table)| !table.is_empty());
        match format {
            Format::Json => json(self),
            Format::Markdown => {
                let lines: String = lines.iter().map(|line| format!("{}\n\n", escape::markdown(line))).collect();
                both.map(|(title, table)| format!("## {title}\n\n{}\n", table.markdown())).collect::<String>() + &lines
            }
            Format::Table => {
                let lines: String = lines.iter().map(|line| wrapped(line, 0)).collect();
                both.map(|(title, table)| format!("{title}\n{}\n", table.terminal())).collect::<String>() + &lines
            }
        }
    }

    fn matrix(&self) -> Table {
        let heads = self.columns.iter().map(|column| {
            Column::number(if column.is_differing { format!("{} (differs)", column.name) } else { column.name.clone() })
        });
        let mut table = Table::new([Column::code("case")].into_iter().chain(heads));
        for case in &self.cases {
            let best = case.best();
            let cell =
                |(place, cell): (usize, &FleetCell)| self.cell(cell, if Some(place) == best { "● " } else { "" });
            let cells = case.cells.iter().enumerate().map(cell);
            table.row([Cell::from(case.case_id.clone())].into_iter().chain(cells));
        }
        table.footnote(
            "● fastest of the case; medians, for a kind the geometric mean over its equal machines (slowest ÷ fastest)",
        );
        if self.columns_left_out > 0 {
            let more = plural(self.columns_left_out, "machine or kind", "machines and kinds");
            table.footnote(format!("{more} more have no column"));
        }
        table
    }

    fn cell(&self, cell: &FleetCell, mark: &str) -> Cell {
        let Some(ms) = cell.latency_p50_ms else {
            return Cell::from(cell.status.map(|status| status.to_string()).unwrap_or_default());
        };
        let spread = cell.spread.map(|spread| format!("(×{spread:.2})"));
        let price = cell.price_per_million.map(|price| format!("{} {}/M", three_digits_of_any(price), self.currency));
        let energy = cell.kwh_per_million.map(|energy| format!("{} kWh/M", three_digits_of_any(energy)));
        let asked = cell.failed + cell.machines;
        let failed = (cell.failed > 0).then(|| format!("({} of {asked} without a figure)", cell.failed));
        let details: Vec<String> = [spread, failed, price, energy].into_iter().flatten().collect();
        let shown = Cell::from(format!("{mark}{}", latency(ms)));
        if details.is_empty() { shown } else { shown.detail(details.join(" ")) }
    }

    fn table_of_machines(&self) -> Table {
        let numbers = ["cases", "matmul, GFLOP/s", "copy, GB/s", "anchor", "disturbed", "throttled", "runs", "trend"];
        let columns = ["machine", "host", "kind"].map(Column::text).into_iter().chain(numbers.map(Column::number));
        let mut table = Table::new(columns).minor(&["kind", "disturbed", "throttled", "runs"]);
        let figure = |figure: Option<f64>, text: fn(f64) -> String| figure.map(text).unwrap_or_default();
        // The time of the newest run over that of the first.
        let change = |it: &FleetMachine| it.trend.last().copied().filter(|_| it.trend.len() > 1);
        // If there are many, only machines that differ have a row.
        for it in self.machines.iter().filter(|it| !self.is_large() || it.is_differing) {
            table.row([
                it.name.clone(),
                it.host_id.clone(),
                it.kind.clone().unwrap_or_else(|| "unknown".into()),
                it.measured.to_string(),
                figure(it.product_gflops_per_second, three_digits),
                figure(it.copy_gb_per_second, three_digits),
                figure(it.anchor_ms, latency),
                figure(it.disturbed_share, percent),
                it.throttled.map(|count| count.to_string()).unwrap_or_default(),
                it.runs.to_string(),
                figure(change(it), signed_percent),
            ]);
        }
        self.lines().into_iter().for_each(|line| table.footnote(line));
        table
    }

    /// If there are many models, only the levels that are not the same on all machines.
    fn table_of_levels(&self) -> Table {
        const MANY: usize = 40;
        let is_shown = |it: &&Agreement| self.compatibility.len() <= MANY || it.machines.len() > 1;
        let mut table = Table::new(["model", "configuration", "machines"].map(Column::text));
        for it in self.compatibility.iter().filter(is_shown) {
            table.row([it.model.clone(), it.configuration.clone(), it.text()]);
        }
        let equal = self.compatibility.iter().filter(|it| !is_shown(it)).count();
        if equal > 0 && !table.is_empty() {
            table.footnote(format!("{equal} more have the same level on all machines"));
        }
        table
    }

    /// Sentences about the kinds and the machines that differ.
    pub fn lines(&self) -> Vec<String> {
        let name = |host_id: &str| {
            let found = self.machines.iter().find(|machine| machine.host_id == host_id);
            found.map_or_else(|| host_id.to_owned(), |machine| machine.name.clone())
        };
        let mut differing: BTreeMap<&str, Vec<&MachineDifference>> = BTreeMap::new();
        self.differences.iter().for_each(|it| differing.entry(&it.host_id).or_default().push(it));
        let kinds = self.kinds.iter().filter(|kind| kind.machines > 1).map(Kind::line);
        let machines = differing.into_iter().map(|(host_id, found)| {
            let quantities = found.iter().map(|it| difference(it)).collect::<Vec<_>>().join(", ");
            let reference = found.first().map(|it| name(&it.reference)).unwrap_or_default();
            let what = format!("{} is not equal to {reference}, which is of the same kind", name(host_id));
            format!("{what}: {quantities}; its cases are excluded from the mean")
        });
        kinds.chain(machines).collect()
    }
}

impl FleetCase {
    /// The place of the fastest cell, if there are several.
    pub fn best(&self) -> Option<usize> {
        let known = || self.cells.iter().enumerate().filter_map(|(place, cell)| Some((place, cell.latency_p50_ms?)));
        let fastest = known().min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place);
        fastest.filter(|_| known().count() > 1)
    }
}

impl Kind {
    fn line(&self) -> String {
        let differing = match self.differing {
            0 => "none is shown to differ".to_owned(),
            1 => "1 of them differs from the others".to_owned(),
            count => format!("{count} of them differ from the others"),
        };
        let anchor = self.anchor_case.as_deref().zip(self.anchor_spread);
        let anchor = anchor.map(|(case, spread)| format!("; anchor {case}: slowest ÷ fastest {spread:.2}"));
        let machines = plural(self.machines, "machine", "machines");
        format!("{}: {machines}, {differing}{}", self.name, anchor.unwrap_or_default())
    }
}

impl Agreement {
    /// `high on 9, none on 1`, or `high`.
    pub fn text(&self) -> String {
        let parts: Vec<String> =
            self.machines.iter().rev().map(|(level, count)| format!("{level} on {count}")).collect();
        match self.machines.len() {
            1 => self.machines.keys().map(ToString::to_string).collect(),
            _ => parts.join(", "),
        }
    }
}

/// `a copy of memory takes 1.97 × the time [1.80, 2.16]`.
fn difference(found: &MachineDifference) -> String {
    let what = match found.quantity {
        Quantity::Product => "a matrix multiplication",
        Quantity::Copy => "a copy of memory",
        Quantity::Anchor => "a call of the anchor case",
    };
    let RatioInterval { ratio, lower, upper, .. } = found.interval;
    format!("{what} takes {ratio:.2} × the time [{lower:.2}, {upper:.2}]")
}
