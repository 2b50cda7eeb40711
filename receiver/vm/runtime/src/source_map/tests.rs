use proptest::prelude::*;

use super::*;

/// Of `tsc` 7.0.2, with `--target es2022 --module commonjs --sourceMap`.
const TSC: &str = r#"{"version":3,"file":"main.js","sourceRoot":"","sources":["../main.ts"],"names":[],"mappings":";AAGA,MAAe,IAAI;IACc,IAAI;IAAnC,YAA+B,IAAY;oBAAZ,IAAI;IAAW,CAAC;CAEhD;AAED,SAAS,IAAI,CAAC,KAAa,EAAE,IAAY;IACvC,IAAI,GAAG,GAAG,IAAI,CAAC;IACf,KAAK,IAAI,CAAC,GAAG,CAAC,EAAE,CAAC,GAAG,KAAK,EAAE,CAAC,EAAE,EAAE,CAAC;QAC/B,GAAG,GAAG,CAAC,GAAG,GAAG,EAAE,GAAG,CAAC,CAAC,GAAG,OAAO,CAAC;IACjC,CAAC;IACD,OAAO,GAAG,CAAC;AACb,CAAC;AAED,MAAM,KAAK,GAAS,CAAC,KAAK,EAAE,EAAE;IAC5B,OAAO,IAAI,CAAC,KAAK,EAAE,CAAC,CAAC,GAAG,CAAC,CAAC;AAC5B,CAAC,CAAC"}"#;

/// Of `esbuild`, with `--bundle --minify --platform=node --sourcemap`, and the script.
const ESBUILD: &str = r#"{
  "version": 3,
  "sources": ["../main.ts"],
  "sourcesContent": ["interface Step { depth: number }\ntype Work = (count: number) => number;\n"],
  "mappings": "AAGA,IAAeA,EAAf,KAAoB,CAClB,YAA+BC,EAAc,CAAd,UAAAA,CAAe,CAAf,IAEjC,EAEA,SAASC,EAAKC,EAAeF,EAAsB,CACjD,IAAIG,EAAMH,EACV,QAASI,EAAI,EAAGA,EAAIF,EAAOE,IACzBD,GAAOA,EAAM,GAAKC,GAAK,QAEzB,OAAOD,CACT,CAEA,IAAME,EAAeH,GACZD,EAAKC,EAAO,CAAC,EAAI,EAGpBI,EAAN,cAAqBP,CAAK,CACxB,IAAIG,EAAuB,CACzB,OAAOG,EAAMH,CAAK,EAAI,KAAK,IAC7B,CACF,EAEMK,EAAM,KAAK,IAAI,EAAI,IACrBC,EAAQ,EACNC,EAAS,IAAIH,EAAO,CAAC,EAC3B,KAAO,KAAK,IAAI,EAAIC,GAAKC,GAASC,EAAO,IAAI,GAAI,EACjD,QAAQ,IAAID,CAAK",
  "names": ["Base", "seed", "spin", "count", "sum", "i", "arrow", "Runner", "end", "total", "runner"]
}"#;
const MINIFIED: &str = "var u=class{constructor(n){this.seed=n}seed};function c(e,n){let r=n;for(let t=0;t<e;t++)r=(r*31+t)%1000003;return r}var b=e=>c(e,3)+1,";

const BYTES_MAX: usize = 1 << 20;

fn read(text: &str) -> Result<SourceMap, SourceMapError> {
    SourceMap::read(text.as_bytes(), "/app/out", BYTES_MAX)
}

#[test]
fn positions_of_a_compiled_script_are_those_of_its_source() {
    let map = read(TSC).unwrap();
    let at = |line, column| map.find(line, column).map(|found| (&**found.source, found.line, found.column));
    // `function spin(`, `let sum`, and the arrow function.
    assert_eq!(at(7, 13), Some(("/app/main.ts", 9, 13)));
    assert_eq!(at(8, 8), Some(("/app/main.ts", 10, 6)));
    assert_eq!(at(14, 14), Some(("/app/main.ts", 17, 20)));
    assert_eq!(at(0, 3), None);
}

#[test]
fn a_minified_script_has_its_names_in_the_map() {
    let map = read(ESBUILD).unwrap();
    let at = |text: &str, more: usize| {
        let column = MINIFIED.find(text).unwrap() + more;
        map.find(0, column as u32).map(|found| (found.line, found.name))
    };
    assert_eq!(at("c(e,n)", 0), Some((9, Some("spin"))));
    // Its parameters: nothing begins exactly there.
    assert_eq!(at("c(e,n)", 1), Some((9, None)));
    assert_eq!(at("b=e", 0), Some((17, Some("arrow"))));
    assert_eq!(at("e=>c", 0), Some((17, Some("count"))));
    assert_eq!(at("u=class", 0), Some((4, Some("Base"))));
}

#[test]
fn the_sources_of_other_tools_are_named() {
    let text = r#")]}'
        {"sources":["webpack://app/./src/a.ts","b%20c.ts",null],"names":["x"],"version":3,
         "mappings":"AAAA,CCAA,CCAA","sourceRoot":"../lib/","x_google_ignoreList":[1]}"#;
    let map = read(text).unwrap();
    let source = |column| map.find(0, column).map(|found| &**found.source);
    assert_eq!(source(1), Some("/app/lib/b c.ts"));
    assert_eq!(source(2), None);
    let text = r#"{"version":3,"sources":["webpack://app/./src/a.ts"],"mappings":"AAAA"}"#;
    assert_eq!(&**read(text).unwrap().find(0, 0).unwrap().source, "webpack://app/./src/a.ts");
}

#[test]
fn each_section_holds_from_its_offset_on() {
    let text = r#"{"version":3,"sections":[
        {"offset":{"line":0,"column":0},"map":{"version":3,"sources":["a.ts"],"mappings":"AAAA;AACA"}},
        {"map":{"version":3,"sources":["b.ts"],"mappings":"AAAA,IAAI;AACJ"},"offset":{"line":1,"column":10}}]}"#;
    let map = read(text).unwrap();
    let at = |line, column| {
        map.find(line, column)
            .map(|found| (found.source.rsplit('/').next().unwrap_or(""), found.line, found.column))
    };
    assert_eq!(at(1, 9), Some(("a.ts", 2, 0)));
    assert_eq!(at(1, 10), Some(("b.ts", 1, 0)));
    assert_eq!(at(1, 15), Some(("b.ts", 1, 4)));
    assert_eq!(at(2, 1), Some(("b.ts", 2, 0)));
}

#[test]
fn what_is_no_map_is_refused() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"version":3}"#,
        r#"{"version":2,"mappings":""}"#,
        r#"{"version":3,"sources":[],"mappings":"AAAA"}"#,
        r#"{"version":3,"sources":["a"],"mappings":"AAAA""#,
        r#"{"version":3,"sources":["a"],"mappings":["AAAA"]}"#,
        r#"{"version":3,"sections":[{"offset":{"line":0,"column":0}}]}"#,
        r#"{"version":3,"sections":[{"offset":{"line":0,"column":0},"map":{"version":3,"sections":[]}}]}"#,
    ] {
        assert!(matches!(read(text), Err(SourceMapError::Malformed(_))), "{text}");
    }
}

#[test]
fn a_map_takes_no_more_memory_than_it_may() {
    let whole = read(ESBUILD).unwrap();
    assert!(whole.bytes() < 2 * ESBUILD.len());
    for bytes in (0..whole.bytes()).step_by(64) {
        match SourceMap::read(ESBUILD.as_bytes(), "/app/out", bytes) {
            Ok(map) => assert!(map.bytes() <= bytes + size_of::<Section>()),
            Err(error) => assert!(matches!(error, SourceMapError::TooBig), "{error}"),
        }
    }
    // The texts of sources are passed over, however long they are.
    let content = "x".repeat(4 * BYTES_MAX);
    let text = format!(r#"{{"version":3,"sourcesContent":["{content}"],"sources":["a"],"mappings":"AAAA"}}"#);
    assert!(read(&text).unwrap().bytes() < 1 << 10);
}

proptest! {
    #[test]
    fn a_changed_map_is_one_or_an_error(
        changes in prop::collection::vec((0..ESBUILD.len(), any::<u8>()), 1..8),
        cut in 0..ESBUILD.len(),
        line in 0_u32..4,
        column in 0_u32..400,
    ) {
        let mut bytes = ESBUILD.as_bytes().to_vec();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        for text in [&bytes[..], &bytes[..cut]] {
            if let Ok(map) = SourceMap::read(text, "/", BYTES_MAX) {
                let _ = map.find(line, column);
            }
        }
    }
}
