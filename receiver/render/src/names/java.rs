//! Names of Java: `java.util.HashMap.get(Object)`, and as perf's maps have them, `Ljava/util/HashMap;::get`.

/// Without the package and the parameters, as far as needed; nothing if it is no name of Java.
pub(super) fn candidates(name: &str) -> Vec<String> {
    let parameters_start = name.find('(').unwrap_or(name.len());
    let (path, parameters) = name.split_at(parameters_start);
    let is_name = |text: &str| text.chars().all(|one| one.is_alphanumeric() || "_$./;:<>-+".contains(one));
    if !is_name(path) || (!parameters.is_empty() && !parameters.ends_with(')')) {
        return Vec::new();
    }
    let (class, separator, method) = match path.strip_prefix('L').and_then(|path| path.split_once(";::")) {
        Some((class, method)) => (class, "::", method),
        None => match path.rsplit_once('.') {
            Some((class, method)) => (class, ".", method),
            None => return Vec::new(),
        },
    };
    // Hidden classes, such as lambdas', have an address: `Handler$$Lambda/0x0000000800c03000`.
    let named = class.split_once("/0x").map_or(class, |(named, _)| named);
    let short = named.rsplit(['.', '/']).next().unwrap_or(named);
    vec![
        format!("{short}{separator}{method}"),
        format!("{short}{separator}{method}{parameters}"),
        format!("{class}{separator}{method}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_parameters_are_elided_first() {
        assert_eq!(
            candidates("java.util.HashMap.get(Object)"),
            ["HashMap.get", "HashMap.get(Object)", "java.util.HashMap.get"]
        );
        assert_eq!(candidates("Ljava/util/HashMap$Node;::find")[0], "HashMap$Node::find");
        assert_eq!(candidates("app.Main$$Lambda/0x0000000800c03000.run()")[0], "Main$$Lambda.run");
        assert_eq!(candidates("app.Main.<init>(int, String[])")[0], "Main.<init>");
    }

    #[test]
    fn what_javascript_has_is_left_alone() {
        for name in ["LazyCompile:~run /srv/app.js:1:1", "Function:*f file:///a.js:3:1", "StoreIC", "f(x) y"]
        {
            assert_eq!(candidates(name), [""; 0], "{name}");
        }
    }
}
