{{/*
The least with which each kind works; `securityContext` is laid over it: maps merge, lists replace.

BPF loads programs, PERFMON attaches them and opens events. SYS_PTRACE reads the maps and files of processes that are
another user's, SYSLOG the kernel's symbols. Nothing is privileged, no path of the node is mounted, and seccomp and
AppArmor stay on. The image's file capabilities are what a user other than root gets these from.
*/}}
{{- define "sidewinder.securityContext" -}}
{{- $capabilities := list "BPF" "PERFMON" -}}
{{- $context := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true -}}
{{- if eq .kind "node" -}}
  {{- $capabilities = concat $capabilities (list "SYS_PTRACE" "SYSLOG") -}}
{{- else if eq .values.runAs "root" -}}
  {{- $capabilities = append $capabilities "SYS_PTRACE" -}}
{{- end -}}
{{- if or (eq .kind "node") (eq .values.runAs "root") -}}
  {{- $context = merge $context (dict "runAsUser" 0 "runAsGroup" 0 "runAsNonRoot" false) -}}
{{- else -}}
  {{- $_ := set $context "runAsNonRoot" true -}}
{{- end -}}
{{- $_ := set $context "capabilities" (dict "drop" (list "ALL") "add" $capabilities) -}}
{{- $_ := set $context "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- with .values.seLinuxOptions }}{{ $_ := set $context "seLinuxOptions" . }}{{ end -}}
{{- with .values.appArmorProfile }}{{ $_ := set $context "appArmorProfile" . }}{{ end -}}
{{- toYaml (mustMergeOverwrite $context (deepCopy .values.securityContext)) -}}
{{- end }}
