package container

import (
	"path"
	"path/filepath"
)

// containerdState is STATE/io.containerd.runtime.v2.task/NAMESPACE/ID, whose
// config.json is the container's OCI configuration.
type containerdState struct {
	dirs  []string
	tasks map[string]*containerdTask // by "NAMESPACE/ID"
	byID  map[string]*containerdTask
}

type containerdTask struct {
	dir, namespace, id string
	read               bool
	facts              facts
}

// ociConfig is the part of config.json that is used.
type ociConfig struct {
	Annotations map[string]string `json:"annotations"`
}

// mobyNamespace is the namespace of Docker in containerd.
const mobyNamespace = "moby"

// refresh lists the tasks. A known task keeps its configuration, because it is
// written once.
func (s *containerdState) refresh() {
	tasks, byID := make(map[string]*containerdTask), make(map[string]*containerdTask)
	for _, dir := range s.dirs {
		for _, namespace := range listDir(dir) {
			for _, id := range listDir(filepath.Join(dir, namespace)) {
				key := namespace + "/" + id
				task := s.tasks[key]
				if task == nil || task.dir != dir {
					task = &containerdTask{dir: dir, namespace: namespace, id: id}
				}
				tasks[key], byID[id] = task, task
			}
		}
	}
	s.tasks, s.byID = tasks, byID
}

func (s *containerdState) lookup(id string) (facts, bool) {
	task := s.byID[id]
	if task == nil {
		return facts{}, false
	}
	return task.describe(), true
}

// at: without a configured path, containerd uses /NAMESPACE/ID.
func (s *containerdState) at(cgroupPath string) (Identity, bool) {
	task := s.tasks[cgroupPath[1:]]
	if task == nil {
		return Identity{}, false
	}
	return task.describe().apply(Identity{ID: task.id, Name: clean(task.id), Root: path.Clean(cgroupPath)}), true
}

func (t *containerdTask) describe() facts {
	if t.read {
		return t.facts
	}
	var config ociConfig
	_, _, err := readState(filepath.Join(t.dir, t.namespace, t.id, "config.json"), version{}, &config)
	t.read = err == nil // it may not be written yet
	t.facts = labelFacts(config.Annotations)
	t.facts.runtime = Containerd
	if t.namespace == mobyNamespace {
		t.facts.runtime = Docker
	} else if t.facts.namespace == "" {
		t.facts.namespace = t.namespace
	}
	return t.facts
}
