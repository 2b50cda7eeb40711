//! Whether the files and directories that a configuration names can be used here. Changes nothing.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};
use sidewinder_config::{ComponentId, Config, ExporterConfig, Extension, FileStorage, LogOutput, TlsClient};
use sidewinder_otlp::send::{ExporterCredentials, check_tls};
use sidewinder_text::ExternalText;

use sidewinder_base::causes::error_chain;

/// What is wrong with each file or directory that can't be used, after its key in the configuration. Exporters that no pipeline
/// uses, and their extensions, are never opened, and are not checked.
pub(super) fn problems(config: &Config) -> Vec<String> {
    let mut found = Problems { config, found: Vec::new() };
    for (id, exporter) in config.used_exporters() {
        found.check_exporter(id, exporter);
    }
    for output in &config.telemetry.logs.output_paths {
        if let LogOutput::File(path) = output {
            found.note("service::telemetry::logs::output_paths", path, writable_file(path));
        }
    }
    found.found
}

struct Problems<'a> {
    config: &'a Config,
    found: Vec<String>,
}

impl Problems<'_> {
    fn check_exporter(&mut self, id: &ComponentId, exporter: &ExporterConfig) {
        let (extensions, tls) = match exporter {
            ExporterConfig::OtlpGrpc(exporter) => {
                let tls = exporter.uses_tls().then(|| TlsClient { insecure: false, ..exporter.tls.clone() });
                ([&exporter.auth, &exporter.sending_queue.storage], tls)
            }
            ExporterConfig::OtlpHttp(exporter) => {
                let tls = exporter.url().starts_with("https:").then(|| exporter.tls.clone());
                ([&exporter.auth, &exporter.sending_queue.storage], tls)
            }
            ExporterConfig::File(exporter) => {
                let checked = writable_file(&exporter.path);
                return self.note(&format!("exporters::{id}::path"), &exporter.path, checked);
            }
            ExporterConfig::Debug(_) => return,
        };
        // Messages begin with the rest of the key.
        if let Some(Err(error)) = tls.as_ref().map(check_tls) {
            self.push(format!("exporters::{id}::{}", error_chain(&error)));
        }
        for id in extensions.into_iter().flatten() {
            let credentials = match self.config.extensions.get(id) {
                Some(Extension::BearerTokenAuth(bearer)) => ExporterCredentials::Bearer(bearer.clone()),
                Some(Extension::BasicAuth(basic)) => ExporterCredentials::Basic(basic.clone()),
                Some(Extension::FileStorage(storage)) => {
                    let key = format!("extensions::{id}::directory");
                    self.note(&key, &storage.directory, storage_directory(storage));
                    continue;
                }
                Some(Extension::HealthCheck(_) | Extension::Zpages(_)) | None => continue,
            };
            if let Err(error) = credentials.check() {
                self.push(format!("extensions::{id}::{}", error_chain(&error)));
            }
        }
    }

    fn note(&mut self, key: &str, path: &Path, checked: Result<(), String>) {
        if let Err(problem) = checked {
            self.push(format!("{key}: {path:?} {problem}"));
        }
    }

    /// Several exporters may name the same file.
    fn push(&mut self, problem: String) {
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }
}

/// Whether a file can be written, or created.
fn writable_file(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Err("is a directory, not a file".to_owned()),
        Ok(_) => access(path, Access::WRITE_OK).map_err(|error| cannot("be written", &error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            writable_directory(folder.unwrap_or(Path::new(".")))
                .map_err(|problem| format!("can't be created: its directory {problem}"))
        }
        Err(error) => Err(cannot("be opened", &error)),
    }
}

/// Whether files can be created in a directory.
fn writable_directory(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Ok(found) if !found.is_dir() => Err("is not a directory".to_owned()),
        Ok(_) => access(path, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| cannot("be written to", &error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("does not exist".to_owned()),
        Err(error) => Err(cannot("be opened", &error)),
    }
}

fn storage_directory(storage: &FileStorage) -> Result<(), String> {
    let directory = &*storage.directory;
    match writable_directory(directory) {
        Err(_) if storage.create_directory && !directory.exists() => {
            let above = directory.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
            writable_directory(above)
                .map_err(|problem| format!("can't be created: {} {problem}", ExternalText::new(above)))
        }
        Err(problem) if !directory.exists() => {
            Err(format!("{problem}: create it, or set create_directory: true"))
        }
        checked => checked,
    }
}

fn cannot(what: &str, error: &io::Error) -> String {
    format!("can't {what}: {error}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use sidewinder_config::{ConfigSource, load};

    use super::*;

    /// The problems of a configuration with these exporters and extensions, all of which are used.
    fn problems_of(exporters: &str, extensions: &[(&str, &str)]) -> Vec<String> {
        let used = |line: &str| line.split(':').next().unwrap_or_default().trim().to_owned();
        let names: Vec<_> = extensions.iter().map(|(name, _)| *name).collect();
        let described: Vec<_> = extensions.iter().map(|(name, keys)| format!("{name}: {keys}")).collect();
        let text = format!(
            "receivers: {{profiling: }}\nexporters: {{{exporters}}}\nextensions: {{{}}}\nservice: {{extensions: [{}], \
             pipelines: {{profiles: {{receivers: [profiling], exporters: [{}]}}}}}}",
            described.join(", "),
            names.join(", "),
            used(exporters),
        );
        let loaded = load(&[ConfigSource::Yaml(text)], &[], &BTreeMap::new()).unwrap();
        problems(&loaded.config)
    }

    #[test]
    fn what_an_exporter_names_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("empty"), "\n").unwrap();
        fs::write(at("token"), "secret\n").unwrap();
        let grpc = |keys: &str| format!("otlp_grpc: {{endpoint: 'collector:4317', {keys}}}");
        let insecure = "tls: {insecure: true}";
        let missing = "No such file or directory (os error 2)";

        let of_ca = problems_of(&grpc(&format!("tls: {{ca_file: {}}}", at("ca.pem"))), &[]);
        assert_eq!(
            of_ca,
            [format!("exporters::otlp_grpc::tls::ca_file: cannot read {:?}: {missing}", at("ca.pem"))]
        );
        let https =
            format!("otlp_http: {{endpoint: 'https://collector', tls: {{ca_file: {}}}}}", at("token"));
        let [of_https] = &problems_of(&https, &[])[..] else { panic!() };
        assert!(
            of_https.starts_with("exporters::otlp_http::tls::ca_file: it has no certificate in PEM"),
            "{of_https}"
        );
        assert_eq!(problems_of(&https.replace("https:", "http:"), &[]), [""; 0], "nothing is encrypted");

        let with_token = grpc(&format!("{insecure}, auth: {{authenticator: bearertokenauth}}"));
        let of_token = |name: &str| {
            problems_of(&with_token, &[("bearertokenauth", &format!("{{filename: {}}}", at(name)))])
        };
        let begin = "extensions::bearertokenauth::filename: cannot read the credentials in";
        assert_eq!(of_token("none"), [format!("{begin} {:?}: {missing}", at("none"))]);
        assert_eq!(of_token("empty"), [format!("{begin} {:?}: it is empty", at("empty"))]);
        assert_eq!(of_token("token"), [""; 0]);
        let with_user = grpc(&format!("{insecure}, auth: {{authenticator: basicauth}}"));
        let user = format!("{{client_auth: {{username: a, password_file: {}}}}}", at("none"));
        let [of_user] = &problems_of(&with_user, &[("basicauth", &user)])[..] else { panic!() };
        assert!(
            of_user.starts_with("extensions::basicauth::client_auth::password_file: cannot read"),
            "{of_user}"
        );

        let with_queue = grpc(&format!("{insecure}, sending_queue: {{storage: file_storage}}"));
        let of_queue = |keys: &str| problems_of(&with_queue, &[("file_storage", keys)]);
        let key = "extensions::file_storage::directory";
        assert_eq!(
            of_queue(&format!("{{directory: {}}}", at("queue"))),
            [format!("{key}: {:?} does not exist: create it, or set create_directory: true", at("queue"))]
        );
        assert_eq!(of_queue(&format!("{{directory: {}, create_directory: true}}", at("a/b"))), [""; 0]);
        assert_eq!(
            of_queue(&format!("{{directory: {}}}", at("token"))),
            [format!("{key}: {:?} is not a directory", at("token"))]
        );
        assert_eq!(of_queue(&format!("{{directory: {}}}", at(""))), [""; 0]);

        assert_eq!(problems_of(&format!("file: {{path: {}}}", at("out.otlp")), &[]), [""; 0]);
        assert_eq!(
            problems_of(&format!("file: {{path: {}}}", at("none/out.otlp")), &[]),
            [format!(
                "exporters::file::path: {:?} can't be created: its directory does not exist",
                at("none/out.otlp")
            )]
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is created");
    }

    #[test]
    fn what_no_pipeline_uses_is_not_opened() {
        let unused = "debug: , otlp_grpc: {endpoint: 'collector:4317', tls: {ca_file: /none}}";
        assert_eq!(problems_of(unused, &[]), [""; 0]);
    }
}
