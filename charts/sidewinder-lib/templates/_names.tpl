{{/* Names and labels, as charts have them. */}}

{{- define "sidewinder.fullname" -}}
{{- $name := .values.nameOverride | default "sidewinder" -}}
{{- if .values.fullnameOverride -}}
  {{- .values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .root.Release.Name -}}
  {{- .root.Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
  {{- printf "%s-%s" .root.Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "sidewinder.namespace" -}}
{{- .values.namespaceOverride | default .root.Release.Namespace -}}
{{- end }}

{{- define "sidewinder.selectorLabels" -}}
app.kubernetes.io/name: {{ .values.nameOverride | default "sidewinder" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "sidewinder.labels" -}}
{{- $labels := include "sidewinder.selectorLabels" . | fromYaml -}}
{{- $version := regexReplaceAll "[^A-Za-z0-9._-]" (.values.image.tag | default (include "sidewinder.version" .)) "_" | trunc 63 -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $ours := dict "helm.sh/chart" $chart "app.kubernetes.io/version" $version "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- toYaml (merge $labels $ours (.values.additionalLabels | default dict)) -}}
{{- end }}
