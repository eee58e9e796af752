// Package cri asks a container runtime (containerd, CRI-O) for its pods and containers, by
// the Container Runtime Interface of Kubernetes, version runtime.v1, over a unix socket.
//
// It speaks gRPC by HTTP/2 of the standard library, and has the few messages that are
// needed, written by hand over protowire: the modules k8s.io/cri-api and
// google.golang.org/grpc would add some 30 modules for four calls. Field numbers are those
// of api.proto (k8s.io/cri-api/pkg/apis/runtime/v1).
package cri
