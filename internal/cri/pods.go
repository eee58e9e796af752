package cri

import (
	"context"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sandbox is a pod's sandbox. A pod whose sandbox has ended gets another one, with the same
// UID.
type Sandbox struct {
	ID, Name, Namespace, UID string
	// Ready: it runs. The runtime sets it to false at StopPodSandbox, before the kubelet
	// removes the pod's cgroup, and when the sandbox has ended otherwise.
	Ready bool
	// Labels and Annotations are those of the pod.
	Labels, Annotations map[string]string
}

// Container is a container of a pod.
type Container struct {
	ID, SandboxID, Name string
	Running             bool
}

// stateRunning is CONTAINER_RUNNING; stateReady is SANDBOX_READY.
const (
	stateReady   = 0
	stateRunning = 1
)

// Version is the runtime's name and version.
func (c *Client) Version(ctx context.Context) (name, version string, err error) {
	answer, err := c.Call(ctx, "Version", nil)
	if err != nil {
		return "", "", err
	}
	err = fields(answer, func(field protowire.Number, content []byte, _ uint64) error {
		switch field {
		case 2:
			name = string(content)
		case 3:
			version = string(content)
		}
		return nil
	})
	return name, version, err
}

// Sandboxes lists the sandboxes of all pods.
func (c *Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	answer, err := c.Call(ctx, "ListPodSandbox", nil)
	if err != nil {
		return nil, err
	}
	return parseSandboxes(answer)
}

func parseSandboxes(answer []byte) (all []Sandbox, err error) {
	err = fields(answer, func(field protowire.Number, content []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		sandbox, err := parseSandbox(content)
		all = append(all, sandbox)
		return err
	})
	return all, err
}

func parseSandbox(message []byte) (s Sandbox, err error) {
	state := uint64(stateReady) // its default is left out
	err = fields(message, func(field protowire.Number, content []byte, number uint64) error {
		switch field {
		case 1:
			s.ID = string(content)
		case 2:
			return fields(content, func(field protowire.Number, content []byte, _ uint64) error {
				switch field {
				case 1:
					s.Name = string(content)
				case 2:
					s.UID = string(content)
				case 3:
					s.Namespace = string(content)
				}
				return nil
			})
		case 3:
			state = number
		case 5:
			return addTo(&s.Labels, content)
		case 6:
			return addTo(&s.Annotations, content)
		}
		return nil
	})
	s.Ready = state == stateReady
	return s, err
}

// Containers lists the containers of all pods.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	answer, err := c.Call(ctx, "ListContainers", nil)
	if err != nil {
		return nil, err
	}
	return parseContainers(answer)
}

func parseContainers(answer []byte) (all []Container, err error) {
	err = fields(answer, func(field protowire.Number, content []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		var found Container
		err := fields(content, func(field protowire.Number, content []byte, number uint64) error {
			switch field {
			case 1:
				found.ID = string(content)
			case 2:
				found.SandboxID = string(content)
			case 3:
				return fields(content, func(field protowire.Number, content []byte, _ uint64) error {
					if field == 1 {
						found.Name = string(content)
					}
					return nil
				})
			case 6:
				found.Running = number == stateRunning
			}
			return nil
		})
		all = append(all, found)
		return err
	})
	return all, err
}
