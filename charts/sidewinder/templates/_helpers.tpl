{{- define "sidewinder.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
  {{- .Values.serviceAccount.name | default (include "sidewinder.fullname" (dict "root" $ "values" .Values)) -}}
{{- else -}}
  {{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* What the library makes an injected sidecar from. ConfigMaps are namespaced: the configuration travels in the pod. */}}
{{- define "sidewinder.injectedValues" -}}
{{- $ours := dict "configMap" (dict "create" false) "runAs" "root" "serviceName" "${env:K8S_SERVICE_NAME}" -}}
{{- mustMergeOverwrite (deepCopy .Values) $ours | toYaml -}}
{{- end }}

{{/* Whether there is a Service. Takes the values. */}}
{{- define "sidewinder.hasService" -}}
{{- if or .service.enabled .serviceMonitor.enabled }}yes{{ end -}}
{{- end }}
