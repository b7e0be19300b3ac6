//! Results for continuous integration: JUnit XML, annotations of GitHub, and a short comment for a pull request.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::numbers::plural;
use super::table::{Column, Table};
use super::{Format, escape};

/// A form for continuous integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// JUnit XML, in which a regression or a failed case is a failed test
    Junit,
    /// Annotations of a GitHub workflow, a line for each regression, failed case and open case, and one for the verdict
    Github,
    /// A short comment for a pull request: the verdict, the regressions, and the rest folded
    MarkdownComment,
}

/// A form for readers, scripts or continuous integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyFormat {
    Text(Format),
    Checks(CheckFormat),
}

impl ValueEnum for AnyFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            AnyFormat::Text(Format::Table),
            AnyFormat::Text(Format::Markdown),
            AnyFormat::Text(Format::Json),
            AnyFormat::Checks(CheckFormat::Junit),
            AnyFormat::Checks(CheckFormat::Github),
            AnyFormat::Checks(CheckFormat::MarkdownComment),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            AnyFormat::Text(format) => format.to_possible_value(),
            AnyFormat::Checks(format) => format.to_possible_value(),
        }
    }
}

/// What is reported to continuous integration.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The command and what it is about: `compare main new`.
    pub title: String,
    /// The conclusion in a few words.
    pub verdict: String,
    pub suites: Vec<CheckSuite>,
    /// The whole result as Markdown, which a comment folds.
    pub details: String,
}

/// The cases of a run, or of a pair of programs.
#[derive(Clone, Debug, Default)]
pub struct CheckSuite {
    pub name: String,
    pub checks: Vec<Check>,
}

/// A case, and what became of it.
#[derive(Clone, Debug)]
pub struct Check {
    pub case_id: String,
    /// The median time of a call.
    pub latency_ms: Option<f64>,
    pub outcome: Outcome,
    /// Why the outcome is not [`Outcome::Passed`].
    pub message: String,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    Passed,
    /// It became worse.
    Regression,
    /// It should have run, and did not, or its outputs are wrong.
    Failed,
    /// Neither a regression nor its absence is shown.
    Undecided,
    /// It cannot run here, or there is nothing to compare it with.
    Skipped,
}

impl Outcome {
    fn is_failure(self) -> bool {
        matches!(self, Outcome::Regression | Outcome::Failed)
    }
}

/// The most regressions that a comment shows.
const MOST_ROWS: usize = 30;
/// The most letters of each.
const MOST_LETTERS: usize = 200;
/// GitHub takes 65,536 characters for a comment, to which a workflow may add some.
const MOST_CHARACTERS: usize = 65_000;

impl Checks {
    /// The text, ending with a line break.
    pub fn render(&self, format: CheckFormat) -> String {
        match format {
            CheckFormat::Junit => self.junit(),
            CheckFormat::Github => self.github(),
            CheckFormat::MarkdownComment => self.comment(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Check> {
        self.suites.iter().flat_map(|suite| &suite.checks)
    }

    fn junit(&self) -> String {
        let (title, counted, verdict) = (attribute(&self.title), counts(self.all()), escape::xml(&self.verdict));
        let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        text += &format!("<testsuites name=\"{title}\" {counted}>\n");
        for CheckSuite { name, checks } in &self.suites {
            text += &format!("  <testsuite name=\"{}\" {}>\n", attribute(name), counts(checks.iter()));
            text.extend(checks.iter().map(Check::junit));
            text += &format!("    <system-out>{verdict}</system-out>\n  </testsuite>\n");
        }
        text + "</testsuites>\n"
    }

    /// An annotation for each regression, failed case and open case, and one with the verdict. GitHub shows the first ten of each kind beside the
    /// code; the log has all of them.
    fn github(&self) -> String {
        let mut text = String::new();
        for check in self.all() {
            let command = match check.outcome {
                Outcome::Regression | Outcome::Failed => "error",
                Outcome::Undecided => "warning",
                Outcome::Passed | Outcome::Skipped => continue,
            };
            let title = property(&format!("inferbench: {}", check.case_id));
            text += &format!("::{command} title={title}::{}\n", data(&check.said()));
        }
        let title = property(&format!("inferbench {}", self.title));
        text + &format!("::notice title={title}::{}\n", data(&self.verdict))
    }

    fn comment(&self) -> String {
        let failures: Vec<&Check> = self.all().filter(|check| check.outcome.is_failure()).collect();
        let mut text = format!("### inferbench: {}\n\n", escape::markdown(&self.verdict));
        if !failures.is_empty() {
            let mut table = Table::new([Column::code("case"), Column::text("what became worse")]);
            for check in failures.iter().take(MOST_ROWS) {
                let line: String = check.said().lines().next().unwrap_or_default().chars().take(MOST_LETTERS).collect();
                table.row([check.case_id.clone(), line]);
            }
            if failures.len() > MOST_ROWS {
                table.footnote(format!("and {} more", failures.len() - MOST_ROWS));
            }
            text += &format!("{}\n\n", table.markdown().trim_end());
        }
        let summary = format!("{}, {}", self.title, plural(self.all().count(), "case", "cases"));
        let with = |details: &str| {
            format!("{text}<details><summary>{}</summary>\n\n{details}\n\n</details>\n", escape::html(&summary))
        };
        let whole = with(self.details.trim());
        if whole.chars().count() <= MOST_CHARACTERS {
            return whole;
        }
        with("The whole result is too long for a comment; `--format markdown` writes it.")
    }
}

impl Check {
    /// `regression: 2.00 ms → 2.40 ms`.
    fn said(&self) -> String {
        format!("{}: {}", self.outcome, self.message)
    }

    fn junit(&self) -> String {
        let model = self.case_id.split('/').next().unwrap_or_default();
        let seconds = self.latency_ms.map(|ms| format!(" time=\"{:.9}\"", ms / 1e3)).unwrap_or_default();
        let head =
            format!("    <testcase classname=\"{}\" name=\"{}\"{seconds}", attribute(model), attribute(&self.case_id));
        let (outcome, message) = (self.outcome, attribute(&self.said()));
        let child = match outcome {
            Outcome::Passed => return format!("{head}/>\n"),
            Outcome::Undecided | Outcome::Skipped => format!("<skipped message=\"{message}\"/>"),
            Outcome::Regression | Outcome::Failed => {
                let body = escape::xml(&self.message);
                format!("<failure type=\"{outcome}\" message=\"{message}\">{body}</failure>")
            }
        };
        format!("{head}>\n      {child}\n    </testcase>\n")
    }
}

/// The attributes with the counts and the sum of the times.
fn counts<'a>(checks: impl Iterator<Item = &'a Check>) -> String {
    let (mut tests, mut failures, mut skipped, mut ms) = (0, 0, 0, 0.0);
    for check in checks {
        tests += 1;
        failures += usize::from(check.outcome.is_failure());
        skipped += usize::from(matches!(check.outcome, Outcome::Undecided | Outcome::Skipped));
        ms += check.latency_ms.unwrap_or_default();
    }
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.9}\"", ms / 1e3)
}

/// Text in an attribute of XML, where line breaks would become spaces.
fn attribute(text: &str) -> String {
    escape::xml(&escape::terminal(text))
}

/// The text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
pub(crate) mod tests {
    use resvg::usvg::roxmltree::Document;

    use super::*;

    /// The tests of a JUnit file: name, kind of the child, and its message.
    pub fn tests_of(junit: &str) -> Vec<(String, String, String)> {
        let document = Document::parse(junit).unwrap_or_else(|error| panic!("{error}: {junit}"));
        let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
        let test = |node: resvg::usvg::roxmltree::Node<'_, '_>| {
            let child = node.first_element_child();
            let name = node.attribute("name").unwrap_or_default().to_owned();
            let kind = child.map_or("passed", |child| child.tag_name().name()).to_owned();
            (name, kind, child.and_then(|child| child.attribute("message")).unwrap_or_default().to_owned())
        };
        cases.map(test).collect()
    }

    fn checks() -> Checks {
        let check = |case_id: &str, latency_ms, outcome, message: &str| Check {
            case_id: case_id.into(),
            latency_ms,
            outcome,
            message: message.into(),
        };
        let checks = vec![
            check("m/ort-cpu-f32/1", Some(2.5), Outcome::Passed, ""),
            check(
                "m<\"&'>\u{1}/ort, x:y/1",
                Some(3.0),
                Outcome::Regression,
                "100 % \u{1b}[31m<b>\n::error::x ]]> | \u{fffe}",
            ),
            check("m/tch-cpu-f32/1", None, Outcome::Failed, "killed"),
            check("m/tract-cpu-f32/1", None, Outcome::Undecided, "cannot-say"),
            check("m/jax-cpu-f32/1", None, Outcome::Skipped, "unavailable"),
        ];
        let suites = vec![CheckSuite { name: "a & b".into(), checks }];
        Checks {
            title: "compare a, b".into(),
            verdict: "regression: 1 slower".into(),
            suites,
            details: "all | of | it".into(),
        }
    }

    #[test]
    fn junit_is_well_formed_whatever_names_and_messages_are() {
        let text = checks().render(CheckFormat::Junit);
        let found = tests_of(&text);
        let kinds: Vec<&str> = found.iter().map(|(_, kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["passed", "failure", "failure", "skipped", "skipped"]);
        assert_eq!(found[1].0, "m<\"&'> /ort, x:y/1");
        assert!(found[1].2.contains("100 %  [31m<b> ::error::x ]]> | "), "{found:?}");
        let document = Document::parse(&text).unwrap();
        let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
        let counted =
            ["name", "tests", "failures", "errors", "skipped", "time"].map(|name| suite.attribute(name).unwrap());
        assert_eq!(counted, ["a & b", "5", "2", "0", "2", "0.005500000"]);
        let times =
            document.descendants().filter_map(|node| node.attribute("time").filter(|_| node.has_tag_name("testcase")));
        assert_eq!(times.collect::<Vec<_>>(), ["0.002500000", "0.003000000"]);
    }

    #[test]
    fn each_failed_case_is_one_line_for_github_that_nothing_in_it_can_end() {
        let text = checks().render(CheckFormat::Github);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("::error title=inferbench%3A m<\"&'>\u{1}/ort%2C x%3Ay/1::regression: 100 %25 "));
        assert!(lines[0].contains("%0A::error::x") && lines[1].ends_with("::failed: killed"), "{text}");
        assert_eq!(lines[2], "::warning title=inferbench%3A m/tract-cpu-f32/1::undecided: cannot-say");
        assert_eq!(lines[3], "::notice title=inferbench compare a%2C b::regression: 1 slower");
    }

    #[test]
    fn a_comment_has_the_verdict_first_and_the_rest_folded() {
        let text = checks().render(CheckFormat::MarkdownComment);
        assert!(text.starts_with("### inferbench: regression: 1 slower\n\n| case | what became worse |"), "{text}");
        let (shown, folded) = text.split_once("<details><summary>compare a, b, 5 cases</summary>\n\n").unwrap();
        assert!(shown.contains("| `m/tch-cpu-f32/1` | failed: killed |") && !shown.contains("cannot-say"), "{text}");
        assert_eq!(folded, "all | of | it\n\n</details>\n");
        let passed = Checks { suites: Vec::new(), ..checks() }.render(CheckFormat::MarkdownComment);
        assert!(!passed.contains("| case |"), "{passed}");
    }

    #[test]
    fn a_comment_is_never_longer_than_github_takes() {
        let mut long = checks();
        long.details = "é".repeat(70_000);
        long.suites[0].checks[2].message = "x".repeat(10_000);
        long.suites[0].checks = vec![long.suites[0].checks[2].clone(); 1000];
        let text = long.render(CheckFormat::MarkdownComment);
        assert!(text.contains("and 970 more") && text.contains("`--format markdown` writes it"), "{text}");
        assert!(text.chars().count() < 65_536);
        // Each `<` becomes four characters.
        long.details.truncate(2 * 49_000);
        long.suites[0].checks.iter_mut().for_each(|check| check.message = "<".repeat(200));
        assert!(long.render(CheckFormat::MarkdownComment).chars().count() < 65_536);
    }
}
