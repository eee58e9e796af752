package container

import (
	"path/filepath"
	"strings"
)

// dockerState is DATA-ROOT/containers/ID/config.v2.json.
type dockerState struct {
	roots []string
	known map[string]*dockerContainer
	round uint64
}

type dockerContainer struct {
	version version
	facts   facts
	round   uint64 // when its file was looked at
	asked   uint64 // when somebody asked
}

// dockerConfig is the part of config.v2.json that is used.
type dockerConfig struct {
	Name   string // with a slash before it
	Config struct {
		Labels map[string]string
	}
}

func (s *dockerState) refresh() {
	s.round++
	for id, c := range s.known {
		if c.asked+2 < s.round {
			delete(s.known, id)
		}
	}
}

// renameRounds is the number of refreshes after which the file of a known
// container is checked again, because a container can be renamed.
const renameRounds = 12

// lookup reads the file of a container if it is new or changed.
func (s *dockerState) lookup(id string) (facts, bool) {
	known := s.known[id]
	if known != nil {
		known.asked = s.round
		if s.round-known.round < renameRounds {
			return known.facts, true
		}
	}
	before := version{}
	if known != nil {
		before = known.version
	}
	for _, root := range s.roots {
		var config dockerConfig
		now, changed, err := readState(filepath.Join(root, "containers", id, "config.v2.json"), before, &config)
		if err != nil {
			continue
		}
		if changed {
			known = &dockerContainer{version: now, facts: dockerFacts(config)}
			if s.known == nil {
				s.known = make(map[string]*dockerContainer)
			}
			s.known[id] = known
		}
		known.round, known.asked = s.round, s.round
		return known.facts, true
	}
	delete(s.known, id)
	return facts{}, false
}

func dockerFacts(config dockerConfig) facts {
	f := labelFacts(config.Config.Labels)
	if !f.kubernetes {
		f, _ = kubernetesName(strings.TrimPrefix(config.Name, "/"))
	}
	f.runtime = Docker
	return f
}
