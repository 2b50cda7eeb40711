//! The URLs of source maps as paths of files.

/// A place that a URL refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reference {
    /// The path of a file, absolute and without `.` and `..`.
    File(String),
    /// A URL of another kind, as it is written.
    Other(String),
}

/// The path of a script, which V8 names by its path or its URL; `None` if it is no file.
#[must_use]
pub fn script_path(name: &str) -> Option<String> {
    if !name.starts_with('/') && !name.starts_with("file:") {
        return None;
    }
    match Reference::parse(name, "/", Form::of_name(name)) {
        Reference::File(path) => Some(path),
        Reference::Other(_) => None,
    }
}

/// Whether `%` and two digits stand for a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Url,
    Path,
}

impl Form {
    fn of_name(name: &str) -> Self {
        if name.starts_with('/') { Self::Path } else { Self::Url }
    }
}

impl Reference {
    /// A URL, relative to a folder.
    #[must_use]
    pub fn resolve(url: &str, folder: &str) -> Self {
        Self::parse(url, folder, Form::Url)
    }

    fn parse(url: &str, folder: &str, form: Form) -> Self {
        let decode = |path: &str| if form == Form::Url { percent_decode(path) } else { path.to_owned() };
        if let Some(rest) = url.strip_prefix("file:") {
            // Of an authority only its absence means a file of this machine.
            return match rest.strip_prefix("//").unwrap_or(rest) {
                path if path.starts_with('/') && !path.starts_with("//") => {
                    Self::File(normalize(&decode(path)))
                }
                _ => Self::Other(url.to_owned()),
            };
        }
        if has_scheme(url) || url.starts_with("//") {
            return Self::Other(url.to_owned());
        }
        let path = decode(url);
        let absolute = if path.starts_with('/') { path } else { format!("{folder}/{path}") };
        Self::File(normalize(&absolute))
    }

    /// The path or the URL.
    #[must_use]
    pub fn into_text(self) -> String {
        match self {
            Self::File(text) | Self::Other(text) => text,
        }
    }
}

/// The folder of a file.
#[must_use]
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn has_scheme(url: &str) -> bool {
    let Some((scheme, _)) = url.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|other| other.is_ascii_alphanumeric() || matches!(other, '+' | '-' | '.'))
}

/// Resolves `.` and `..`.
fn normalize(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Replaces `%` and two digits by the byte; what is no UTF-8 then stays as it was.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scripts_are_paths_or_urls() {
        let path = |name: &str| script_path(name);
        assert_eq!(path("/app/a%20b/x.js").as_deref(), Some("/app/a%20b/x.js"));
        assert_eq!(path("file:///app/a%20b/x.mjs").as_deref(), Some("/app/a b/x.mjs"));
        assert_eq!(path("file:///app/%C3%B6.mjs").as_deref(), Some("/app/\u{f6}.mjs"));
        for other in ["node:fs", "evalmachine.<anonymous>", "", "http://x/y.js", "file://host/x.js", "x.js"] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[test]
    fn references_are_resolved_in_a_folder() {
        let resolve = |url: &str| Reference::resolve(url, "/app/dist").into_text();
        assert_eq!(resolve("main.js.map"), "/app/dist/main.js.map");
        assert_eq!(resolve("../src/./a%20b.ts"), "/app/src/a b.ts");
        assert_eq!(resolve("/src/a.ts"), "/src/a.ts");
        assert_eq!(resolve("../../../../etc"), "/etc");
        assert_eq!(resolve("file:///src/a.ts"), "/src/a.ts");
        assert_eq!(resolve("100%.ts"), "/app/dist/100%.ts");
        for other in ["https://host/x.map", "//host/x.map", "webpack://app/./src/a.ts", "webpack:///src/a.ts"]
        {
            assert_eq!(Reference::resolve(other, "/app"), Reference::Other(other.to_owned()));
        }
    }
}
