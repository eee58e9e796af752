package agent

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Placement is the place that the journal of one file system is to have.
type Placement struct {
	Dev    blockdev.Dev
	Volume Volume
	// Pods use the file system; more than one: it is shared.
	Pods []Pod
	// Cgroup is the pod's; "" with Neutral.
	Cgroup  string
	Neutral bool
	// Weight is the pod's, or the largest of the pods'; 0: unchanged.
	Weight uint64
}

// Shared says that several pods use the file system.
func (p Placement) Shared() bool { return len(p.Pods) > 1 }

// For names the pods and the volume, for people.
func (p Placement) For() string {
	var names []string
	for _, pod := range p.Pods {
		names = append(names, fmt.Sprintf("%s/%s", cmp.Or(pod.Namespace, "?"), cmp.Or(pod.Name, pod.UID)))
	}
	return strings.Join(names, ", ") + " volume " + p.Volume.Name
}

// Plan plans the places of the journals of volumes. Volumes without a running pod have none.
// The placements are in the order of their devices; there are none with PlaceNone.
// problems are the annotations that are not used, with the reasons.
func Plan(config Config, known Choices, volumes []Volume, pods map[string]Pod) (placements []Placement, problems []string) {
	if config.Placement == PlaceNone {
		return nil, nil
	}
	byDevice := map[blockdev.Dev]*Placement{}
	problems = slices.Clone(known.Problems)
	for _, volume := range volumes {
		pod, known := pods[volume.PodUID]
		if !known || pod.Cgroup == "" || !pod.Ready && !pod.Unknown {
			continue
		}
		p := byDevice[volume.Mount.Dev]
		if p == nil {
			p = &Placement{Dev: volume.Mount.Dev, Volume: volume}
			byDevice[volume.Mount.Dev] = p
		}
		if !slices.ContainsFunc(p.Pods, func(other Pod) bool { return other.UID == pod.UID }) {
			p.Pods = append(p.Pods, pod)
		}
	}
	for _, p := range byDevice {
		slices.SortFunc(p.Pods, func(a, b Pod) int { return strings.Compare(a.UID, b.UID) })
		for _, pod := range p.Pods {
			weight, problem := config.weight(known, p.Volume, pod)
			p.Weight = max(p.Weight, weight)
			if problem != "" && !slices.Contains(problems, problem) {
				problems = append(problems, problem)
			}
		}
		if p.Neutral = p.Shared() || config.Placement == PlaceNeutral; !p.Neutral {
			p.Cgroup = p.Pods[0].Cgroup
		}
		placements = append(placements, *p)
	}
	slices.SortFunc(placements, func(a, b Placement) int { return strings.Compare(a.Dev.String(), b.Dev.String()) })
	slices.Sort(problems)
	return placements, problems
}

// weight is the weight of a pod: that of the class of its volume, else its annotation, if
// its namespace may use it, else that of its QoS class; 0: unchanged.
func (c Config) weight(known Choices, volume Volume, pod Pod) (weight uint64, problem string) {
	if weight := known.Volumes[volume.Name]; weight > 0 {
		return weight, ""
	}
	class := c.Weights[pod.QoS]
	text, annotated := pod.Annotations[Annotation]
	if !annotated {
		return class, ""
	}
	listed := slices.ContainsFunc(c.Namespaces, func(pattern string) bool { ok, _ := path.Match(pattern, pod.Namespace); return ok })
	if !listed && !known.Namespaces[pod.Namespace] {
		return class, fmt.Sprintf("pod %s/%s has the annotation %s, which its namespace may not use: %s", pod.Namespace, pod.Name, Annotation, c.remedy())
	}
	weight, err := parseWeight(text)
	if err != nil {
		return class, fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return weight, ""
}

// remedy is how a namespace may use the annotation.
func (c Config) remedy() string {
	if c.APIServer {
		return fmt.Sprintf("give the namespace the label %s=%s, or add it to namespaces", NamespaceLabel, NamespaceAllowed)
	}
	return "add the namespace to namespaces"
}
