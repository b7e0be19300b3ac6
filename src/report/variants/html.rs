//! One static HTML page: what to ship, the table and the picture. It has no program and asks nobody for anything.

use std::collections::BTreeSet;

use super::columns::{cells, columns};
use super::wording::{failures, legend, others, title};
use super::{VariantTable, Variants, picture};
use crate::report::colour;
use crate::report::escape::html as escape;
use crate::report::html::{STYLE, fill};

const PAGE: &str = include_str!("../html/variants.html");

/// The page.
///
/// # Errors
/// A picture cannot be drawn.
pub fn render(variants: &Variants) -> Result<String, String> {
    let sections = variants.tables.iter().map(|table| section(table, &variants.tables));
    let sections = sections.collect::<Result<Vec<String>, String>>()?.concat();
    let first = variants.tables.first();
    let model = first.map_or("", |table| table.model.as_str());
    let rows = variants.tables.iter().flat_map(|table| &table.rows);
    let runs: BTreeSet<&str> = rows.flat_map(|row| &row.run_ids).map(String::as_str).collect();
    let runs: Vec<&str> = runs.into_iter().collect();
    Ok(fill(
        PAGE,
        &[
            ("model", &escape(model)),
            ("runs", &escape(&runs.join(", "))),
            ("style", STYLE),
            ("colours", &colours()),
            ("sections", &sections),
        ],
    ))
}

fn section(table: &VariantTable, tables: &[VariantTable]) -> Result<String, String> {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(&title(table, tables)));
    html.push_str(&format!("<p class=\"choice\">{}</p>\n", escape(&table.recommendation.sentence)));
    for reason in &table.recommendation.reasons {
        html.push_str(&format!("<p class=\"reason\">{}</p>\n", escape(reason)));
    }
    html.push_str(&rows(table));
    html.push_str(&list("", &[failures(table), others(table)].concat()));
    if let Some(svg) = picture::svg(table)? {
        html.push_str(&format!("<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n", CAPTION));
    }
    html.push_str(&list("quiet", &legend(table)));
    html.push_str("</section>\n");
    Ok(html)
}

const CAPTION: &str = "Quality against the median time of a call. Better is up and to the left; rings are what no other row beats \
    in these two.";

fn rows(table: &VariantTable) -> String {
    let columns = columns(table);
    let class = |index: usize| if columns[index].is_number { " class=\"number\"" } else { "" };
    let head: String =
        columns.iter().enumerate().map(|(index, column)| format!("<th{}>{}</th>", class(index), column.name)).collect();
    let body: String = table
        .rows
        .iter()
        .filter(|row| row.is_measured())
        .map(|row| {
            let cells: String = cells(table, row)
                .into_iter()
                .enumerate()
                .map(|(index, cell)| format!("<td{}>{}</td>", class(index), cell_html(&cell)))
                .collect();
            let class = if row.is_recommended { " class=\"best\"" } else { "" };
            format!("<tr{class}>{cells}</tr>\n")
        })
        .collect();
    format!("<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n")
}

/// A figure and its factor, which is of a quieter colour.
fn cell_html(cell: &str) -> String {
    match cell.split_once("  ") {
        Some((figure, factor)) => format!("{} <span class=\"quiet\">{}</span>", escape(figure), escape(factor)),
        None => escape(cell),
    }
}

fn list(class: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}

/// Rules that give a picture, which is made for white paper, the page's colours: they are stronger than its attributes.
fn colours() -> String {
    let rule = |attribute: &str, light: &str, value: &str| {
        format!("figure svg [{attribute}=\"{light}\" i] {{ {attribute}: {value}; }}\n")
    };
    let of_page = [
        ("#ffffff", "var(--card)"),
        ("#1b1f24", "var(--ink)"),
        ("#59636e", "var(--quiet)"),
        ("#dde1e6", "var(--rule)"),
    ];
    let of_series = colour::all();
    let mut rules = String::new();
    for attribute in ["fill", "stroke"] {
        rules.extend(of_page.iter().map(|(light, value)| rule(attribute, light, value)));
        rules.extend(
            of_series
                .iter()
                .map(|colour| rule(attribute, colour.light, &format!("light-dark({}, {})", colour.light, colour.dark))),
        );
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::super::{Options, compare};
    use super::*;

    #[test]
    fn the_page_has_the_choice_the_table_and_the_picture_and_no_program() {
        let page = render(&compare(&example(), &Options::new("m")).unwrap()).unwrap();
        let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part} in {page}"));
        assert!(place("Ship int8-static on ort") < place("<table>") && place("</table>") < place("<svg"));
        assert!(place("<tr class=\"best\"><td>●◇</td>") < place("1.25 ms <span class=\"quiet\">0.62 ×</span>"));
        assert!(page.contains("failed: no operator &lt;Gelu&gt; | a"), "{page}");
        for part in ["<script", " src=", "<link", "@import", "url("] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn names_that_look_like_markup_are_only_names() {
        let hostile = "</style><script>alert(1)</script>\"'";
        let mut records = example();
        for record in &mut records {
            record.model = hostile.into();
            record.run_id = hostile.into();
            record.backend = format!("{}{hostile}", record.backend);
            record.data_source = Some(hostile.into());
            if record.variant != "original" {
                record.variant = format!("{}{hostile}", record.variant);
            }
        }
        let page = render(&compare(&records, &Options::new(hostile)).unwrap()).unwrap();
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"), "{page}");
    }

    #[test]
    fn a_picture_is_readable_in_the_dark() {
        let rules = colours();
        assert!(rules.contains("figure svg [fill=\"#0072b2\" i] { fill: light-dark(#0072b2, #4ba8e8); }"), "{rules}");
        assert!(rules.contains("figure svg [stroke=\"#1b1f24\" i] { stroke: var(--ink); }"), "{rules}");
    }
}
