"""Holds Kubernetes manifests against the strict schemas of each version that the charts are for.

Reads a JSON list of {"of": where it is from, "manifest": ...}. Says each thing that is wrong on a line and how many
manifests were held against schemas, and ends with 1 where anything is wrong.
"""

import json
import sys

from kubernetes_validate import SchemaNotFoundError, ValidationError, validate

VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
# Kinds that Kubernetes does not have, and since when it has the others.
FOREIGN = {"PodMonitor", "PrometheusRule", "SecurityContextConstraints", "ServiceMonitor"}
SINCE = {"admissionregistration.k8s.io/v1beta1": 34, "admissionregistration.k8s.io/v1": 36}
YOUNG = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


def is_there(manifest, version):
    if manifest["kind"] not in YOUNG:
        return True
    return int(version.removeprefix("1.")) >= SINCE[manifest["apiVersion"]]


def wrong(entry, version):
    """What a version has against a manifest; nothing where it is right."""
    try:
        validate(entry["manifest"], version, strict=True)
    except (ValidationError, SchemaNotFoundError) as error:
        path = "/".join(map(str, getattr(error, "path", [])))
        return f"{entry['of']}: {entry['manifest']['kind']}: Kubernetes {version}: {path}: {error}"


entries = [entry for entry in json.load(sys.stdin) if entry["manifest"]["kind"] not in FOREIGN]
pairs = [(entry, version) for version in VERSIONS for entry in entries if is_there(entry["manifest"], version)]
errors = [error for error in (wrong(*pair) for pair in pairs) if error]
print(*errors, sep="\n", file=sys.stderr)
print(len(pairs))
sys.exit(1 if errors else 0)
