{{/*
A value as an expression of CEL. The values of a map, and the items of a list, must be of one type there: each is made
`dyn`. A map with the one key `$cel` stands for the expression in it.
*/}}
{{- define "sidewinder.cel" -}}
{{- if kindIs "map" . -}}
  {{- $entries := list -}}
  {{- range $key, $value := . -}}
    {{- $entries = append $entries (printf "%s: dyn(%s)" (toRawJson $key) (include "sidewinder.cel" $value)) -}}
  {{- end -}}
  {{- get . "$cel" | default (printf "{%s}" (join ",\n" $entries | nindent 2)) -}}
{{- else if kindIs "slice" . -}}
  {{- $items := list -}}
  {{- range . -}}
    {{- $items = append $items (printf "dyn(%s)" (include "sidewinder.cel" .)) -}}
  {{- end -}}
  [{{ join ", " $items }}]
{{- else -}}
  {{- toRawJson . -}}
{{- end -}}
{{- end }}

{{/* A text of several lines; as it stands, where CEL can tell its end. */}}
{{- define "sidewinder.celText" -}}
{{- if or (contains "\"\"\"" .) (hasSuffix "\"" .) }}{{ toRawJson . }}{{ else }}r"""{{ . }}"""{{ end -}}
{{- end }}

{{/* JSON patches that append `items` to the list `field` of a pod's spec, which need not be there. */}}
{{- define "sidewinder.celAppend" -}}
(has(object.spec.{{ .field }}) ? [] : [JSONPatch{op: "add", path: "/spec/{{ .field }}", value: []}])
{{- range .items }}
+ [JSONPatch{op: "add", path: "/spec/{{ $.field }}/-", value: {{ include "sidewinder.cel" . }}}]
{{- end }}
{{- end }}
