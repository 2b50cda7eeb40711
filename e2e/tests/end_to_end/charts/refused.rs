//! What can't work is refused.

use std::fs;

use anyhow::{Result, ensure};
use sidewinder_e2e_charts::{self as charts, template};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;

use super::{chart, copy_of_user, helms};

#[promise(Charts, test_all)]
fn a_wrong_value_is_refused_by_its_path() -> Result<()> {
    let wrong = [
        ("image.repo=x", "image"),
        ("podMonitor.enabled=maybe", "podMonitor"),
        ("mode=sidecar", "mode"),
        ("ports.metrics.containerPort=0", "containerPort"),
        ("config.receivers.profiling.samples_per_secnd=97", "samples_per_secnd"),
        ("config.exporters.otlp_grpc.tls.insecure=perhaps", "insecure"),
        ("existingConfigMap=x", "existingConfigMap"),
        // As Kubernetes has them.
        ("securityContext.privilged=true", "privilged"),
        ("securityContext.runAsUser=root", "runAsUser"),
        ("resources.limit.cpu=1", "limit"),
        ("livenessProbe.htpGet.port=1", "htpGet"),
        ("extraEnvs[0].nam=x", "extraEnvs"),
        ("extraVolumes[0].name=x,extraVolumes[0].emptydir.medium=Memory", "emptydir"),
        ("extraVolumeMounts[0].name=x", "mountPath"),
    ];
    for helm in helms("a_wrong_value_is_refused_by_its_path")? {
        let values = chart().join("ci/daemonset-values.yaml").display().to_string();
        for (set, path) in wrong {
            let arguments = ["--values", &values, "--set", set];
            let output = template(&helm, &chart(), &arguments).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success() && said.contains(path), "{}: {set}: {said}", helm.display());
        }
    }
    Ok(())
}

/// What is changed in the pod of an example, and what the library says then.
const PODS_REFUSED: [(&str, &str, &str); 5] = [
    ("containers:", "shareProcessNamespace: false\ncontainers:", "shareProcessNamespace is false"),
    ("containers:", "hostPID: true\ncontainers:", "hostPID is true"),
    ("containers:", "hostUsers: false\ncontainers:", "hostUsers is false"),
    ("  runAsGroup: 1000\n", "", "does not name runAsUser and runAsGroup"),
    ("runAsUser: 1000", "runAsUser: 0", "set runAs to root"),
];

#[promise(PodCapabilities)]
fn a_pod_in_which_a_sidecar_would_see_nothing_is_refused() -> Result<()> {
    for helm in helms("a_pod_in_which_a_sidecar_would_see_nothing_is_refused")? {
        let (_copy, folder) = copy_of_user(&helm, &charts::folder().join("sidewinder-lib/examples/shop"))?;
        let pod = folder.join("templates/_pod.tpl");
        let text = fs::read_to_string(&pod)?;
        for (from, to, reason) in PODS_REFUSED {
            ensure!(text.contains(from), "{} has no {from}", pod.display());
            fs::write(&pod, text.replacen(from, to, 1))?;
            let output = template::<&str>(&helm, &folder, &[]).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success() && said.contains(reason), "{}: {to}: {said}", helm.display());
            let without = run(&mut template(&helm, &folder, &["--set", "sidewinder.enabled=false"]))?;
            ensure!(!without.contains("restartPolicy: Always"), "the sidecar is not wanted:\n{without}");
        }
    }
    Ok(())
}
