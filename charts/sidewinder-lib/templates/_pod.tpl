{{/*
The spec of an app's pod with Sidewinder beside its containers. Takes besides

  spec    the pod's spec, a map

and gives it back as YAML; unchanged where `enabled` is false.
*/}}
{{- define "sidewinder.podSpec" -}}
{{- $spec := deepCopy .spec -}}
{{- $of := dict "root" .root "values" .values "kind" "sidecar" -}}
{{- if .values.enabled -}}
  {{- include "sidewinder.checkPod" (dict "spec" $spec "values" .values) -}}
  {{- $_ := set $spec "shareProcessNamespace" true -}}
  {{- $container := include "sidewinder.container" $of | fromYaml -}}
  {{- $_ := set $spec "initContainers" (append ($spec.initContainers | default list) $container) -}}
  {{- with include "sidewinder.volumes" $of | fromYamlArray -}}
    {{- $_ := set $spec "volumes" (concat ($spec.volumes | default list) .) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end }}

{{/* Refuses a pod in which a sidecar would see nothing. */}}
{{- define "sidewinder.checkPod" -}}
{{- $spec := .spec -}}
{{- if and (hasKey $spec "shareProcessNamespace") (not $spec.shareProcessNamespace) -}}
  {{- fail "\n\nshareProcessNamespace is false: Sidewinder would see only its own container. Remove it, or profile this pod with the DaemonSet of charts/sidewinder (mode: daemonset).\n" -}}
{{- end -}}
{{- if $spec.hostPID -}}
  {{- fail "\n\nhostPID is true: the pod uses the node's PID namespace and has none to share. Profile this pod with the DaemonSet of charts/sidewinder (mode: daemonset).\n" -}}
{{- end -}}
{{- if and (hasKey $spec "hostUsers") (not $spec.hostUsers) -}}
  {{- fail "\n\nhostUsers is false: in a user namespace the kernel refuses eBPF, whatever the capabilities. Remove it, or profile this pod with the DaemonSet of charts/sidewinder (mode: daemonset).\n" -}}
{{- end -}}
{{- if eq .values.runAs "app" -}}
  {{- $named := merge (dict) .values.securityContext ($spec.securityContext | default dict) -}}
  {{- if not (and (hasKey $named "runAsUser") (hasKey $named "runAsGroup")) -}}
    {{- fail "\n\nrunAs is app, and the pod's securityContext does not name runAsUser and runAsGroup: with another user or group than the app's, Sidewinder can't read its mappings. Name both in the pod's securityContext, or set runAs to root, which takes the capability SYS_PTRACE as well.\n" -}}
  {{- end -}}
  {{- if eq 0 (int $named.runAsUser) -}}
    {{- fail "\n\nrunAs is app, and the app's user is root: set runAs to root.\n" -}}
  {{- end -}}
{{- end -}}
{{- end }}
