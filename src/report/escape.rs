//! The one escape of each output: text of files, users and libraries that is printed as text and never as markup.

/// For a terminal: control characters, which could move the cursor or change colours, become spaces.
pub fn terminal(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// For Markdown, also inside of a table: one line without tags, links and the end of a cell. Backticks stay, because
/// messages name commands with them.
pub fn markdown(text: &str) -> String {
    terminal(text).replace('|', "\\|").replace('<', "&lt;").replace("](", "]\\(")
}

/// For Markdown as code, also inside of a table. A backtick, which would end the code, becomes an apostrophe.
pub fn markdown_code(text: &str) -> String {
    format!("`{}`", terminal(text).replace('`', "'").replace('|', "\\|"))
}

/// For HTML, between tags and in quoted attributes.
pub fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// For XML, between tags and in quoted attributes. Characters that XML does not allow become spaces.
pub fn xml(text: &str) -> String {
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    html(&text.chars().map(|c| if is_allowed(c) { c } else { ' ' }).collect::<String>())
}

/// For a cell of a table that a spreadsheet may open: a text that it would compute as a formula stays text.
pub fn spreadsheet(text: &str) -> String {
    let is_formula =
        text.len() > 1 && text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(terminal("a\u{1b}[31m\nb"), "a [31m b");
        assert_eq!(markdown("a | <b>\n[c](d) `e`"), "a \\| &lt;b> [c]\\(d) `e`");
        assert_eq!(markdown_code("a`|<b>"), "`a'\\|<b>`");
        assert_eq!(html("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
        assert_eq!(["=1+1", "-0.5", "@a", "+1e3", "a=b"].map(spreadsheet), ["'=1+1", "-0.5", "'@a", "+1e3", "a=b"]);
        assert_eq!(xml("a\u{0}\u{1b}\n<\u{ffff}é\u{1f600}"), "a  \n&lt; é\u{1f600}");
    }
}
