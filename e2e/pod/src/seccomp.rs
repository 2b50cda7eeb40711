//! Which system calls a container may make.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

/// The profile that container runtimes apply by default, as a Go module that holds it as JSON.
const PROFILE: &str = "github.com/moby/profiles/seccomp@v0.2.3";

/// What a container's `seccompProfile` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seccomp {
    /// What the runtime does by default: calls that need a capability are for those who have it.
    RuntimeDefault,
    /// The same without these calls.
    RuntimeDefaultWithout(&'static [&'static str]),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: Value,
    default_errno_ret: Value,
    syscalls: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Vec<String>,
    action: String,
    #[serde(default)]
    args: Vec<Value>,
    errno_ret: Option<u32>,
    #[serde(default)]
    includes: Condition,
    #[serde(default)]
    excludes: Condition,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    caps: Vec<String>,
    arches: Vec<String>,
}

impl Seccomp {
    /// `linux.seccomp` of the runtime specification, for a container with these capabilities.
    ///
    /// # Errors
    /// When the profile can't be had: Go is missing, or knows no module proxy.
    pub fn to_oci(&self, capabilities: &[&str]) -> Result<Value> {
        let refused = match self {
            Self::RuntimeDefault => &[][..],
            Self::RuntimeDefaultWithout(refused) => refused,
        };
        let profile = default_profile()?;
        let syscalls: Vec<Value> = profile
            .syscalls
            .into_iter()
            .filter(|rule| rule.applies_with(capabilities))
            .map(|rule| rule.without(refused))
            .filter(|rule| !rule.names.is_empty())
            .map(Rule::into_oci)
            .collect();
        Ok(json!({
            "defaultAction": profile.default_action,
            "defaultErrnoRet": profile.default_errno_ret,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
            "syscalls": syscalls,
        }))
    }
}

impl Rule {
    fn applies_with(&self, capabilities: &[&str]) -> bool {
        let has = |wanted: &String| capabilities.contains(&wanted.as_str());
        let is_here = |arch: &String| arch == "amd64";
        let Condition { caps, arches } = &self.includes;
        caps.iter().all(has)
            && (arches.is_empty() || arches.iter().any(is_here))
            && !self.excludes.caps.iter().any(has)
            && !self.excludes.arches.iter().any(is_here)
    }

    fn without(mut self, refused: &[&str]) -> Self {
        self.names.retain(|name| !refused.contains(&name.as_str()));
        self
    }

    fn into_oci(self) -> Value {
        let mut rule = json!({ "names": self.names, "action": self.action, "args": self.args });
        if let Some(errno) = self.errno_ret {
            rule["errnoRet"] = errno.into();
        }
        rule
    }
}

/// The text of the profile, once it has been asked for.
static DEFAULT: OnceLock<Vec<u8>> = OnceLock::new();

fn default_profile() -> Result<Profile> {
    let text = match DEFAULT.get() {
        Some(text) => text,
        None => {
            let fetched = fetch()?;
            DEFAULT.get_or_init(|| fetched)
        }
    };
    Ok(serde_json::from_slice(text)?)
}

fn fetch() -> Result<Vec<u8>> {
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", PROFILE]).stdin(Stdio::null());
    let output = command.output().context("cannot run go, which fetches the seccomp profile")?;
    if !output.status.success() {
        bail!("cannot fetch {PROFILE}: {}", String::from_utf8_lossy(&output.stdout));
    }
    let module: Value = serde_json::from_slice(&output.stdout)?;
    let folder = module["Dir"].as_str().context("go does not say where the module is")?;
    Ok(fs::read(Path::new(folder).join("default.json"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(profile: &Value, call: &str) -> bool {
        let rules = profile["syscalls"].as_array().into_iter().flatten();
        let mut allowing = rules.filter(|rule| rule["action"] == "SCMP_ACT_ALLOW");
        allowing.any(|rule| rule["names"].as_array().into_iter().flatten().any(|name| name == call))
    }

    #[test]
    fn calls_of_a_capability_are_allowed_to_those_who_have_it() -> Result<()> {
        let with = |capabilities: &[&str]| Seccomp::RuntimeDefault.to_oci(capabilities);
        assert!(allows(&with(&[])?, "openat2") && !allows(&with(&[])?, "bpf"));
        assert!(allows(&with(&["CAP_BPF"])?, "bpf") && !allows(&with(&["CAP_BPF"])?, "perf_event_open"));
        let both = ["CAP_BPF", "CAP_PERFMON"];
        assert!(allows(&with(&both)?, "perf_event_open"));
        let without = Seccomp::RuntimeDefaultWithout(&["bpf"]).to_oci(&both)?;
        assert!(allows(&without, "perf_event_open") && !allows(&without, "bpf"));
        Ok(())
    }
}
