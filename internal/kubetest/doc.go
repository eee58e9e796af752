// Package kubetest runs a real Kubernetes node for tests: etcd, the API server, the
// controller manager, the scheduler and the kubelet, with a real containerd. All of them
// run in network and mount namespaces of the test, so that nothing of the node is reachable
// from elsewhere, and no mount and no tunable of the host changes.
//
// scripts/kubernetes builds the programs; [ProgramsVariable] names the result.
package kubetest
