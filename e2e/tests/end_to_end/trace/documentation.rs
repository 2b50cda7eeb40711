//! What the documentation tells people to write, as it stands there.

use std::fs;

use anyhow::{Context as _, Result};

use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::promise::promise;

/// The first block of YAML below a heading of a document, named by its path in the repository.
///
/// # Errors
/// When there is no such document, heading or block.
pub(crate) fn yaml_below(document: &str, heading: &str) -> Result<String> {
    let path = paths::repository().join(document);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    block_below(&text, heading)
        .map(str::to_owned)
        .with_context(|| format!("{document} has no YAML below {heading:?}"))
}

fn block_below<'text>(text: &'text str, heading: &str) -> Option<&'text str> {
    let (_, rest) = text.split_once(&format!("\n{heading}\n"))?;
    // Another heading ends what this one is of.
    let section = rest.split_once("\n#").map_or(rest, |(section, _)| section);
    let (_, block) = section.split_once("\n```yaml\n")?;
    Some(block.split_once("```")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[promise(TraceExamples)]
    fn a_block_is_of_its_own_heading() {
        let text = "# All\n\n## One\n\n```yaml\na: 1\n```\n\n## Two\ntext\n\n## Three\n\n```console\n$\n```\n\n```yaml\nc: 3\n```\n";
        assert_eq!(block_below(text, "## One"), Some("a: 1\n"));
        assert_eq!(block_below(text, "## Two"), None);
        assert_eq!(block_below(text, "## Three"), Some("c: 3\n"));
        assert_eq!(block_below(text, "## Four"), None);
    }
}
