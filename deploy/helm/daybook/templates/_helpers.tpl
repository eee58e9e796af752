{{- define "daybook.labels" -}}
app.kubernetes.io/name: daybook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "daybook.selector" -}}
app.kubernetes.io/name: daybook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "daybook.name" -}}
{{ printf "%s-agent" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Of objects that are in no namespace, which may be longer. No other release has the same. */}}
{{- define "daybook.clusterName" -}}
{{ printf "%s:%s-agent" .Release.Namespace .Release.Name }}
{{- end }}

{{/* The directory of the runtime's socket, if it is not in runDir; else "". */}}
{{- define "daybook.socketDir" -}}
{{- $socket := .Values.config.criSocket | trimPrefix "unix://" -}}
{{- if and $socket (ne $socket "none") (not (hasPrefix (printf "%s/" (clean .Values.runDir)) (clean $socket))) -}}
{{ dir (clean $socket) }}
{{- end -}}
{{- end }}

{{- define "daybook.config" -}}
kubelet_dir: {{ .Values.kubeletDir | toYaml }}
{{- with .Values.config.criSocket }}
cri_socket: {{ . | toYaml }}
{{- end }}
cgroup_root: {{ .Values.config.cgroupRoot | toYaml }}
state_dir: {{ .Values.stateDir | toYaml }}
placement: {{ .Values.config.placement }}
interval: {{ .Values.config.interval }}
metrics: "*:{{ .Values.metrics.port }}"
account: {{ .Values.config.account }}
{{- if .Values.config.waits }}
waits: true
{{- end }}
{{- if .Values.config.apiServer }}
api_server: true
{{- end }}
{{- with .Values.config.namespaces }}
namespaces: {{ toJson . }}
{{- end }}
{{- with .Values.config.weights }}
weights: {{ toJson . }}
{{- end }}
{{- with .Values.config.control }}
control: {{ toJson . }}
{{- end }}
{{- end }}
