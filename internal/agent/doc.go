// Package agent keeps the journals of the ext4 volumes of Kubernetes pods under the weights
// of the pods, for volumes of any CSI driver. It is the part of a node in "daybook agent".
//
// In each round it lists the mounts of pods below the kubelet's directory and the pods of the
// container runtime ([github.com/daybook-project/daybook/internal/cri]), plans the place of
// each journal ([Plan], a pure function), and lets a keeper of
// [github.com/daybook-project/daybook/internal/adopt] make it so. It asks no API server.
package agent
