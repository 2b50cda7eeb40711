//! Names and paths as in the language, of those in class files.

/// A method in its class, `get(Object)`.
pub(super) fn display_method(name: &str, signature: &str) -> String {
    format!("{name}({})", parameters(signature).join(", "))
}

/// The name of a class as in the language, and the dot in front of a method's: `java.util.HashMap.`. That of a hidden class ends with
/// an address, which is left out.
pub(super) fn display_class(class: &str) -> String {
    let end = class.find("/0x").or_else(|| class.find("+0x")).unwrap_or(class.len());
    format!("{}.", class.get(..end).unwrap_or(class).replace('/', "."))
}

/// The path of a source file, as tools that build programs lay them out: below the folders of its package.
pub(super) fn display_path(class: &str, source: &str) -> String {
    let class = class.split("/0x").next().unwrap_or(class);
    match class.rsplit_once('/') {
        Some((package, _)) if !source.is_empty() && !source.contains('/') => format!("{package}/{source}"),
        _ => source.to_owned(),
    }
}

/// The types of the parameters in a method descriptor (JVM specification, section 4.3.3), classes without their package.
fn parameters(signature: &str) -> Vec<String> {
    let inner =
        signature.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(inner, _)| inner);
    let (mut types, mut characters, mut dimensions) = (Vec::new(), inner.chars(), 0);
    while let Some(character) = characters.next() {
        let name = match character {
            '[' => {
                dimensions += 1;
                continue;
            }
            'L' => {
                let class: String = characters.by_ref().take_while(|character| *character != ';').collect();
                class.rsplit('/').next().unwrap_or_default().to_owned()
            }
            'B' => "byte".to_owned(),
            'C' => "char".to_owned(),
            'D' => "double".to_owned(),
            'F' => "float".to_owned(),
            'I' => "int".to_owned(),
            'J' => "long".to_owned(),
            'S' => "short".to_owned(),
            'Z' => "boolean".to_owned(),
            other => other.to_string(),
        };
        types.push(name + &"[]".repeat(dimensions));
        dimensions = 0;
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_language() {
        let name = |class, method, signature| display_class(class) + &display_method(method, signature);
        assert_eq!(
            name("java/util/HashMap", "get", "(Ljava/lang/Object;)Ljava/lang/Object;"),
            "java.util.HashMap.get(Object)"
        );
        assert_eq!(name("Main", "main", "([Ljava/lang/String;)V"), "Main.main(String[])");
        assert_eq!(name("a/B", "<init>", "(I[[JZ)V"), "a.B.<init>(int, long[][], boolean)");
        assert_eq!(name("a/B$$Lambda$14/0x0000000800c03000", "run", "()V"), "a.B$$Lambda$14.run()");
        assert_eq!(name("a/B", "odd", "not a descriptor"), "a.B.odd()");
    }

    #[test]
    fn paths_are_below_the_package() {
        assert_eq!(display_path("java/util/HashMap$Node", "HashMap.java"), "java/util/HashMap.java");
        assert_eq!(display_path("a/B$$Lambda$14/0x0000000800c03000", "B.java"), "a/B.java");
        assert_eq!(display_path("Main", "Main.java"), "Main.java");
        assert_eq!(display_path("java/util/HashMap", ""), "");
    }
}
