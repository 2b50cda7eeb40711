//! An API server of Kubernetes on the loopback interface (`e2e/cluster`), and what speaks to it: kubectl and Helm.
//!
//! It has no node and no controller: what is created there is judged, changed and kept, and nothing comes of it.
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_charts as charts;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::requirement;
use tempfile::TempDir;

/// Time for everything that it makes at its first start, certificates among it.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// What [`Cluster::as_account`] may be used for.
const TOKEN_VALIDITY: &str = "--duration=1h";

/// A running API server. It ends with us, however we end.
#[derive(Debug)]
pub struct Cluster {
    process: Child,
    kubectl: PathBuf,
    folder: TempDir,
}

impl Cluster {
    /// Starts one; `None`, and `test` is recorded as skipped, outside of `make cluster-test`.
    ///
    /// # Errors
    /// When it is not built under `CI=true`, or does not come up; its log is part of the message.
    pub fn start(test: &str) -> Result<Option<Self>> {
        if env::var_os("SIDEWINDER_CLUSTER").is_none() {
            requirement::elsewhere(test, "make cluster-test")?;
            return Ok(None);
        }
        let (server, kubectl) = (charts::tool(test, "cluster")?, charts::tool(test, "kubectl")?);
        let (Some(server), Some(kubectl)) = (server, kubectl) else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        let process = Command::new(server)
            .current_dir(folder.path())
            // As long as we hold it open.
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot run the API server")?;
        let mut cluster = Self { process, kubectl, folder };
        cluster.wait_until_ready()?;
        Ok(Some(cluster))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.kubectl().args(["get", "--raw=/readyz"]).output()?.status.success() {
            if let Some(status) = self.process.try_wait()? {
                bail!("the API server ended with {status}:\n{}", self.log());
            }
            ensure!(Instant::now() < deadline, "no API server within {START_TIMEOUT:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Where it is and who may do everything there.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A program that finds this API server and no other, and keeps nothing in the user's home.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.kubeconfig()).env("KUBECACHEDIR", self.folder.path().join("cache"));
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.folder.path().join("helm"));
        }
        command
    }

    /// `kubectl`.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        self.command(&self.kubectl)
    }

    /// Runs kubectl with manifests on its standard input.
    ///
    /// # Errors
    /// When it can't be run.
    pub fn kubectl_with(&self, arguments: &[&str], manifests: &str) -> Result<Output> {
        let mut kubectl = self.kubectl();
        kubectl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut kubectl = kubectl.spawn().context("cannot run kubectl")?;
        kubectl.stdin.take().context("no standard input")?.write_all(manifests.as_bytes())?;
        Ok(kubectl.wait_with_output()?)
    }

    /// Creates an object, in which every field must be known, and returns it as the server stored it.
    ///
    /// # Errors
    /// When it is refused; the message says why.
    pub fn create(&self, object: &Value) -> Result<Value> {
        answer(&self.kubectl_with(&["create", "--validate=strict", "-f=-", "-o=json"], &object.to_string())?)
    }

    /// As [`Self::create`], but for that nothing is kept.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn try_to_create(&self, object: &Value) -> Result<Value> {
        let arguments = ["create", "--validate=strict", "--dry-run=server", "-f=-", "-o=json"];
        answer(&self.kubectl_with(&arguments, &object.to_string())?)
    }

    /// Creates a namespace with these labels, and what a controller would put into each.
    ///
    /// # Errors
    /// When it is refused.
    pub fn create_namespace(&self, name: &str, labels: &Value) -> Result<()> {
        self.create(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        }))?;
        self.create(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": name },
        }))?;
        Ok(())
    }

    /// Changes an object, by a JSON patch.
    ///
    /// # Errors
    /// When that is refused.
    pub fn patch(&self, object: &str, patches: &Value) -> Result<()> {
        run(self.kubectl().args(["patch", object, "--type=json", "--patch", &patches.to_string()]))?;
        Ok(())
    }

    /// A kubeconfig of a service account, which may what roles allow it.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn as_account(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token =
            run(self.kubectl().args(["create", "token", account, "--namespace", namespace, TOKEN_VALIDITY]))?;
        let text = fs::read_to_string(self.kubeconfig())?;
        let mut config: Value = serde_yaml::from_str(&text)?;
        let user = config.pointer_mut("/users/0/user").context("a kubeconfig without a user")?;
        *user = json!({ "token": token.trim() });
        let path = self.folder.path().join(format!("{namespace}-{account}.kubeconfig"));
        fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It keeps nothing that would be missed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What kubectl printed.
fn answer(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}
