{{/* The container. A sidecar is an init container that stays: it starts before the app, and Jobs end without it. */}}
{{- define "sidewinder.container" -}}
name: sidewinder
image: {{ include "sidewinder.image" . | quote }}
imagePullPolicy: {{ .values.image.pullPolicy }}
{{- if eq .kind "sidecar" }}
restartPolicy: Always
{{- end }}
args:
- --config={{ include "sidewinder.configSource" . }}
{{- range .values.command.extraArgs }}
- {{ . | quote }}
{{- end }}
securityContext:
  {{- include "sidewinder.securityContext" . | nindent 2 }}
env:
{{ include "sidewinder.env" . | trim }}
{{- with .values.extraEnvsFrom }}
envFrom:
{{ toYaml . }}
{{- end }}
{{- if or (include "sidewinder.servesMetrics" .) (include "sidewinder.hasHttpProbe" .) }}
ports:
{{- if include "sidewinder.servesMetrics" . }}
- name: metrics
  containerPort: {{ .values.ports.metrics.containerPort }}
  protocol: TCP
{{- end }}
{{- if include "sidewinder.hasHttpProbe" . }}
- name: health
  containerPort: 13133
  protocol: TCP
{{- end }}
{{- end }}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with get $.values $probe }}
{{ $probe }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
resources:
  {{- include "sidewinder.resources" . | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
{{- with include "sidewinder.volumeMounts" . }}
volumeMounts:
{{ trim . }}
{{- end }}
{{- end }}

{{/* A whole node has more programs, whose unwind tables and names take more memory, than a pod. */}}
{{- define "sidewinder.resources" -}}
{{- $memory := ternary "128Mi" "64Mi" (eq .kind "node") -}}
{{- $defaults := dict "requests" (dict "cpu" "10m" "memory" $memory) "limits" (dict "memory" $memory) -}}
{{- $resources := mustMergeOverwrite $defaults (deepCopy .values.resources) -}}
{{- include "sidewinder.checkResources" $resources -}}
{{- toYaml $resources -}}
{{- end }}

{{/* Who we are, by the Downward API, and the configuration where no ConfigMap holds it. */}}
{{- define "sidewinder.env" -}}
{{- $fields := dict "MY_POD_IP" "status.podIP" "MY_NODE_IP" "status.hostIP" "K8S_NAMESPACE_NAME" "metadata.namespace" "K8S_NODE_NAME" "spec.nodeName" "K8S_POD_NAME" "metadata.name" "K8S_POD_UID" "metadata.uid" -}}
{{- range $name, $field := $fields }}
- name: {{ $name }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ $field }}
{{- end }}
{{- with .values.extraEnvs }}
{{ toYaml . }}
{{- end }}
{{- if not (include "sidewinder.configMapName" .) }}
- name: SIDEWINDER_CONFIG
  value: |
    {{- include "sidewinder.configVariable" . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The configuration as a variable's value, in which kubelet takes $(NAME) for a variable and $$ for a dollar sign. */}}
{{- define "sidewinder.configVariable" -}}
{{- include "sidewinder.config" . | replace "$$" "\x00" | replace "$(" "$$(" | replace "\x00" "$$$$" -}}
{{- end }}

{{/* The ConfigMap that is mounted; none where the configuration travels in the pod itself. */}}
{{- define "sidewinder.configMapName" -}}
{{- if .values.configMap.existingName -}}
  {{- tpl .values.configMap.existingName .root -}}
{{- else if .values.configMap.create -}}
  {{- include "sidewinder.fullname" . -}}
{{- end -}}
{{- end }}

{{/* What --config names. */}}
{{- define "sidewinder.configSource" -}}
{{- if include "sidewinder.configMapName" . -}}
/etc/sidewinder/relay.yaml
{{- else -}}
env:SIDEWINDER_CONFIG
{{- end -}}
{{- end }}
