{{- define "sidewinder.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
  {{- .Values.serviceAccount.name | default (include "sidewinder.fullname" (dict "root" $ "values" .Values)) -}}
{{- else -}}
  {{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}
