//! The parts of a page that are generated: what stands between two marks, which readers don't see.

use anyhow::{Context, Result};

/// Puts the text between the marks of this name.
pub(crate) fn put(page: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- {name} -->"),
        format!("<!-- end of {name} -->"),
    );
    let (before, rest) = page
        .split_once(&begin)
        .with_context(|| format!("the page has no {begin}"))?;
    let (_, after) = rest
        .split_once(&end)
        .with_context(|| format!("the page has no {end}"))?;
    Ok(format!("{before}{begin}\n\n{text}\n\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() -> Result<()> {
        let page = "a\n<!-- x -->old<!-- end of x -->\nb\n";
        let once = put(page, "x", "new")?;
        assert_eq!(once, "a\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nb\n");
        assert_eq!(put(&once, "x", "new")?, once);
        assert!(put(page, "y", "new").is_err());
        Ok(())
    }
}
