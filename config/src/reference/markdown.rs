//! The reference as a Markdown page.

use super::{KeyReference, reference};
use crate::table::Reload;

/// Every key in one table, as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let mut page = "# Every key of the configuration

This page is generated from the table that is used to read configurations. `*` stands for user-defined keys, `[]` follows
a list. Unless stated otherwise, keys of a component with a Collector's type name have the same meanings and defaults as
in the Collector.

**Reload** is the effect of a change at run time, on SIGHUP or when a file of the configuration changes:

- *live*: no interruption. An exporter or extension that changed is replaced, after the old one has sent its data.
- *restart*: the receiver restarts. Interrupts during the restart are not sampled; no event is lost.

An invalid configuration is refused as a whole, and the previous one stays in force.
"
    .to_owned();
    let keys = reference();
    for (section, title) in [
        ("receivers", "Receivers"),
        ("processors", "Processors"),
        ("exporters", "Exporters"),
        ("extensions", "Extensions"),
        ("service", "Service"),
    ] {
        page += &format!(
            "\n## {title}\n\n| Key | Meaning | Values | Default | Reload |\n|---|---|---|---|---|\n"
        );
        for key in keys.iter().filter(|key| key.path.split("::").next() == Some(section)) {
            page += &row(key);
        }
    }
    page
}

fn row(key: &KeyReference) -> String {
    let mut meaning = key.description.to_owned();
    if let Some(limitation) = &key.limitation {
        meaning += &format!(" {}.", capitalized(limitation));
    }
    if let Some(deviation) = key.deviation {
        meaning += &format!(" Differs: {deviation}.");
    }
    let unit = if key.unit.is_empty() { String::new() } else { format!(" {}", key.unit) };
    let default = key.default.as_ref().filter(|default| !default.contains('\n') && *default != "absent");
    let default = default.map(|default| format!("`{default}`{unit}")).unwrap_or_default();
    let reload = match (&key.limitation, key.reload) {
        (Some(_), _) => "",
        (None, Reload::Live) => "live",
        (None, Reload::Restarts) => "restart",
    };
    let values = key.allowed.as_deref().filter(|_| key.limitation.is_none()).unwrap_or_default();
    format!("| `{}` | {} | {} | {default} | {reload} |\n", key.path, cell(&meaning), cell(values))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}
