{{- define "sluicemq.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluicemq.selector" -}}
app.kubernetes.io/name: sluicemq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluicemq.labels" -}}
{{ include "sluicemq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "sluicemq.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "sluicemq.name" .) -}}
{{- end -}}

{{- define "sluicemq.onObjectStore" -}}
{{- if contains "://" .Values.storage.url }}yes{{ end -}}
{{- end -}}

{{- define "sluicemq.replicas" -}}
{{- if ne (toString .Values.replicas) "" }}{{ int .Values.replicas }}{{ else }}{{ ternary 3 1 .Values.nodes.enabled }}{{ end -}}
{{- end -}}

{{- /* The configuration file: the values' listeners, storage, users and nodes, and `config` over them. */ -}}
{{- define "sluicemq.config" -}}
{{- $listeners := dict -}}
{{- range $name, $listener := .Values.listeners -}}
{{- $opened := merge (dict "bind" "0.0.0.0") $listener -}}
{{- if has $name (list "mqtts" "amqps") -}}
{{- $_ := set $opened "tls" (dict "cert" "/etc/sluicemq/tls/tls.crt" "key" "/etc/sluicemq/tls/tls.key") -}}
{{- end -}}
{{- $_ := set $listeners $name $opened -}}
{{- end -}}
{{- $access := dict "users_file" "/etc/sluicemq/users/users.yaml" "anonymous" "never" -}}
{{- $config := dict "storage" (dict "url" .Values.storage.url) "listeners" $listeners "access" $access "log" (dict "format" "json") -}}
{{- with .Values.nodes -}}
{{- if .enabled -}}
{{- $_ := set $config "cluster" (dict "secret_file" "/etc/sluicemq/cluster/secret" "shards" .shards "lease" .lease) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $config (deepCopy .Values.config) | toYaml -}}
{{- end -}}
