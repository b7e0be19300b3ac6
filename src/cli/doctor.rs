//! `inferbench devices --doctor`: what would disturb a measurement here, and how to mend it.

use serde_json::json;

use super::{ListFormat, print};
use crate::exit_codes;
use crate::harness::{Conditions, Finding, examine};
use crate::paths::Paths;
use crate::report;

pub fn run(format: ListFormat) -> anyhow::Result<u8> {
    let findings = examine(&Conditions::watch(&Paths::find()));
    match format {
        ListFormat::Json => print(&report::json(&json!({ "findings": findings })))?,
        ListFormat::Table => print(&findings.iter().map(line).collect::<String>())?,
    }
    Ok(exit_codes::OK)
}

fn line(finding: &Finding) -> String {
    let Finding { subject, state, detail, mend } = finding;
    let mend = mend.map(|mend| format!("; to mend: {mend}")).unwrap_or_default();
    format!("{state:<8} {subject:<11} {detail}{mend}\n")
}
