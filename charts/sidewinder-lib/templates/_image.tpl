{{/*
What runs. Every template of this library takes

  root    the top of the chart that calls, `$`
  values  the settings: `.Values`, or what the chart keeps under the alias of this library
  kind    "sidecar", beside the containers that it profiles, or "node", for all of a node
*/}}

{{/* The release of Sidewinder that this library was made for. */}}
{{- define "sidewinder.version" -}}
0.1.0
{{- end }}

{{/* [registry/]repository:tag, or @digest, which says more than a tag. */}}
{{- define "sidewinder.image" -}}
{{- $image := .values.image -}}
{{- if not $image.repository -}}
  {{- fail "\n\nimage.repository is empty. No registry has Sidewinder's image yet: build it with `make image`, push it where your nodes pull from, and\n  --set image.repository=REGISTRY/sidewinder\n" -}}
{{- end -}}
{{- with (.root.Values.global | default dict).imageRegistry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (include "sidewinder.version" .) }}{{ end -}}
{{- end }}
