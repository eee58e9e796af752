// Package kube asks the API server of Kubernetes for the few things that only it knows:
// the labels of namespaces, and the classes of volumes. It only reads.
package kube
